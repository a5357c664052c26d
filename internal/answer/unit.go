package answer

import (
	"regexp"
	"slices"
	"strings"
)

var (
	quantity = regexp.MustCompile(`^([-+]?(?:\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|\.\d+)(?:/\d+| \d+/\d+)?` +
		`(?: (?:dozen|hundred|thousand|million|billion|trillion))*)(\s*)\(?` +
		`(\\?%|°|\^\{?\\circ\}?|\pL[\pL.'’]*(?:[ /-]\pL[\pL.'’]*){0,3}(?:\^?\{?[23²³]\}?)?)\)?$`)
	// worded is a unit that is written as a text of LaTeX.
	worded = regexp.MustCompile(`\s*(?:\\[ ,;]|~)?\s*\\(?:text|textrm|textbf|mathrm|mbox|rm)\{\s*([^{}]*?)\s*\}` +
		`(\^\{?[23]\}?)?\s*$`)
	vowel = regexp.MustCompile(`(?i)[aeiou]`)
	// reckoned are words behind a number that change its value, or join it to something.
	reckoned = regexp.MustCompile(`(?i)^(?:and|or|to|by|over|times|plus|minus|mod|x|if|for|when|where|below|[ap]\.?m\.?` +
		`|pi|sqrt|sin|cos|tan|cot|sec|csc|log|ln|exp|infinity|factorial|squared|cubed|choose|base` +
		`|dozen|hundred|thousand|million|billion|trillion|hal(?:f|ves)|quarters?` +
		`|(?:thir|four|fif|six|seven|eigh|nin|ten|hundred|thousand)(?:d|th)s?)$`)
)

// Quantity takes the unit off a number: 42 and apples. What it cannot tell from a part of the value stays.
func Quantity(s string) (value, unit string) {
	found := quantity.FindStringSubmatch(worded.ReplaceAllString(s, " $1$2"))
	if found == nil {
		return s, ""
	}
	value, unit = found[1], found[3]
	words := strings.FieldsFunc(unit, func(r rune) bool { return strings.ContainsRune(" /-", r) })
	if slices.ContainsFunc(words, reckoned.MatchString) {
		return s, ""
	}
	first := strings.Trim(words[0], ".^{}23²³")
	_, known := units[singular(first)]
	sign := strings.ContainsAny(unit[:1], `\%^`) || strings.HasPrefix(unit, "°")
	named := found[2] != "" && len(first) > 2 && vowel.MatchString(first)
	if !sign && !named && (!known || found[2] == "" && len(first) < 2) {
		return s, ""
	}
	return value, unit
}

var price = regexp.MustCompile(`^([-+]?)(?:((?:[A-Z]{1,3})?\\?\p{Sc})\s*([.\d].*)|(.*\d)\s*(\\?\p{Sc}))$`)

// priced is Quantity that takes the sign of a currency for a unit, before the number or behind it.
func priced(s string) (value, unit string) {
	if found := price.FindStringSubmatch(s); found != nil {
		return found[1] + found[3] + found[4], found[2] + found[5]
	}
	return Quantity(s)
}

// units are names of measures, by one of them.
var units = func() map[string]string {
	byName := map[string]string{}
	for _, line := range strings.Split(`mm millimeter,cm centimeter,dm decimeter,m meter,km kilometer,in inch inche,
		ft foot feet,yd yard,mi mile,mg milligram,g gram,kg kilogram,lb pound,oz ounce,ml milliliter,l liter,s sec second,
		min minute,h hr hour,yr year,sq square,cu cubic,mph,kph,$ usd dollar us$,€ eur euro,£ gbp,¥ jpy yen,₹ inr rs rupee,
		% percent,° degree`, ",") {
		names := strings.Fields(line)
		for _, name := range names {
			byName[name] = names[0]
		}
	}
	return byName
}()

// singular is a word as units has it.
func singular(word string) string {
	word = strings.ReplaceAll(strings.ToLower(strings.Trim(word, ".")), "metre", "meter")
	if len(word) > 2 {
		word = strings.TrimSuffix(word, "s")
	}
	return word
}

// SameUnit says whether two units are the same, as far as is known: "" is any.
func SameUnit(a, b string) bool { return a == "" || b == "" || measure(a) == measure(b) }

var unitMarks = strings.NewReplacer("^", " ", "{", "", "}", "", `\`, "", "²", " 2", "³", " 3")

// measure is a unit in one spelling.
func measure(unit string) string {
	words := strings.Fields(unitMarks.Replace(unit))
	for i, word := range words {
		words[i] = singular(word)
		if name, known := units[words[i]]; known {
			words[i] = name
		}
	}
	return strings.Join(words, " ")
}

// sameTails says whether what the rule right_units cuts off two answers is the same, or only one has it, as its unit.
func sameTails(a, b string) bool {
	_, x, _ := strings.Cut(a, cutUnits)
	_, y, _ := strings.Cut(b, cutUnits)
	x, y = tailMarks.Replace(x), tailMarks.Replace(y)
	return SameUnit(x, y) && (x == y || !joined.MatchString(x+y))
}

// cutUnits is where the rule right_units cuts.
const cutUnits = `\text{ `

var (
	tailMarks = strings.NewReplacer("{", "", "}", "", " ", "", ".", "")
	joined    = regexp.MustCompile(`^(?:and|or)`)
)
