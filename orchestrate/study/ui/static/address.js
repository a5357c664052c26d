// Addresses: one (#view?key=value…) names each page; nothing else is remembered.

// link is the address of a view; a list gives its key several times.
export function link(view, values) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(values || {})) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== "" && one !== null && one !== undefined) query.append(key, one);
    }
  }
  return `#${view}?${query}`;
}

// ask gets JSON from the server; what is wrong becomes an Error with the server's words.
export async function ask(path, values) {
  const response = await fetch(`api/${path}${link("", values).slice(1)}`);
  const found = await response.json();
  if (!response.ok) throw new Error(found.error);
  return found;
}

// go opens an address, in place of the present one where it is only another form of it.
export function go(address, replace) {
  if (!replace) location.hash = address;
  else {
    history.replaceState(null, "", address); // nobody is told of it
    dispatchEvent(new Event("hashchange"));
  }
}
