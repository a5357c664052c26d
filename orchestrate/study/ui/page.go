package ui

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"regexp"

	"gyre/orchestrate/study/episodes"
)

// fileSource is a page that holds everything: its policy allows one script, by its digest, and no request.
const fileSource = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src '{{.Digest}}'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}</title>
<style>{{.Style}}</style>
</head>
<body>
<header><b>{{.Title}}</b></header>
<main id="main"></main>
<footer id="detail" hidden></footer>
<script type="application/json" id="episodes">{{.Episodes}}</script>
<script type="module">{{.Script}}</script>
</body>
</html>
`

var fileTemplate = template.Must(template.New("file").Parse(fileSource))

// fileScript shows what the page holds.
const fileScript = `
const views = JSON.parse(document.getElementById("episodes").textContent);
let shade = "text";
const draw = (next) => {
  shade = next;
  document.getElementById("main").replaceChildren(h("p", { class: "bar" }, field("colour ( c )",
    choice(Object.entries(shades).map(([key, s]) => [key, s.name]), shade, draw))),
    episodeView(views, shade, document.getElementById("detail")));
};
addEventListener("keydown", (event) => walk(event, shade, draw));
draw(shade);
`

// moduleWords join modules to one script: what one exports the next has anyway.
var moduleWords = regexp.MustCompile(`(?m)^import .*$|^export `)

// WriteFile writes episodes as one HTML file that needs neither this program nor a network.
func WriteFile(w io.Writer, title string, views []*episodes.View) error {
	encoded, err := json.Marshal(views) // < and > are escaped: no text of an episode ends the element
	if err != nil {
		return err
	}
	script := ""
	for _, name := range []string{"dom.js", "episode.js"} {
		source, err := static.ReadFile("static/" + name)
		if err != nil {
			return err
		}
		script += moduleWords.ReplaceAllString(string(source), "")
	}
	script += fileScript
	style, err := static.ReadFile("static/style.css")
	if err != nil {
		return err
	}
	digest := sha256.Sum256([]byte(script))
	return fileTemplate.Execute(w, map[string]any{
		"Title":    title,
		"Digest":   fmt.Sprintf("sha256-%s", base64.StdEncoding.EncodeToString(digest[:])),
		"Style":    template.CSS(style),
		"Script":   template.JS(script),
		"Episodes": template.JS(encoded),
	})
}
