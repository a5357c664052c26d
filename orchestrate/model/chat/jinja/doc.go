// Package jinja renders chat templates as Jinja does in the environment that transformers gives them: blocks trimmed,
// loop controls, tojson, raise_exception, strftime_now and {% generation %}; methods that change their object refused.
//
//	t, err := jinja.Compile(source)
//	text, err := t.Render(map[string]jinja.Value{"messages": messages}, time.Now())
//
// Source: the Jinja 3.1 documentation ("Template Designer Documentation") and transformers' chat templating. Values and
// most of their methods are Starlark's (go.starlark.net), which are Python's: dictionaries keep their order, and None is
// not undefined. What differs is done here: strings are counted in characters, undefined values, and how a value is
// printed. A filter, test, tag or method that is not known is an error. No template can read a file, and a rendering
// ends in time: see the constants of Limits.
package jinja
