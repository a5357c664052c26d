package cli

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"gyre/internal/atomicfile"
	"gyre/internal/table"
	"gyre/orchestrate/run/rundir"
	"gyre/orchestrate/study/episodes"
	"gyre/orchestrate/study/ui"
)

// So many episodes are printed on a terminal, and put on a page, unless --limit says otherwise.
const (
	shownEpisodes = 4
	pagedEpisodes = 100
)

func episodesCommand() *cli.Command {
	return &cli.Command{
		Name: "episodes", Usage: "show episodes: turns, thoughts, actions, rewards, boards", ArgsUsage: "RUN|FILE",
		Flags: []cli.Flag{
			atLeast(0, "step", 0, "of training step `N`, by default the last"),
			&cli.BoolFlag{Name: "all-steps", Usage: "of all steps until that, the latest first"},
			text("kind", "step, validation or analysis"),
			&cli.IntSliceFlag{Name: "group", Usage: "of group `N`; several may be given"},
			&cli.IntSliceFlag{Name: "episode", Usage: "episode `N`; several may be given"},
			text("tag", "of the environment `TAG`"),
			text("stop", "that ended for `REASON`: terminated, turns, ..."),
			&cli.Float64Flag{Name: "min-score", Usage: "with a score of `X` or more"},
			&cli.Float64Flag{Name: "max-score", Usage: "with a score of `X` or less"},
			atLeast(0, "min-tokens", 0, "of `N` tokens or more"),
			atLeast(0, "max-tokens", 0, "of at most `N` tokens; 0 = any"),
			text("text", "that say `TEXT`, whatever its case"),
			atLeast(0, "limit", 0, fmt.Sprintf("at most `N`; by default %d, of --html %d", shownEpisodes,
				pagedEpisodes)),
			text("model", "take the tokenizer from `DIR`"),
			text("html", "write one self-contained page to `FILE`"),
			jsonFlag(),
		},
		Action: showEpisodes,
	}
}

func showEpisodes(c *cli.Context) error {
	source, err := episodes.Open(c.Args().First(), c.String("model"))
	if err != nil {
		return openingError(err)
	}
	step := -1
	if c.IsSet("step") {
		step = c.Int("step")
	}
	file, err := source.File(c.String("kind"), step)
	if err != nil {
		return Usagef("%w", err)
	}
	f, err := episodeFilter(c)
	if err != nil {
		return err
	}
	limit := c.Int("limit")
	switch {
	case limit > 0 || c.Bool("json"):
	case c.IsSet("html"):
		limit = pagedEpisodes
	default:
		limit = shownEpisodes
	}
	found, note, err := wantedEpisodes(c, source, file, f, limit)
	if note != "" {
		defer say(c, "note:", note)
	}
	if err != nil || len(found) == 0 {
		return err
	}
	if c.IsSet("html") {
		return writeEpisodes(c, source, found)
	}
	for i, entry := range found {
		v, err := source.View(c.Context, entry)
		if err != nil {
			return err
		}
		text := v.Text(table.Width(c.App.Writer))
		switch {
		case c.Bool("json"):
			err = write(lines(c.App.Writer), v)
		case i > 0:
			_, err = fmt.Fprint(c.App.Writer, "\n"+text)
		default:
			_, err = fmt.Fprint(c.App.Writer, text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// episodeFilter is what the flags ask of episodes.
func episodeFilter(c *cli.Context) (episodes.Filter, error) {
	f := episodes.Filter{Tag: c.String("tag"), Stop: c.String("stop"), Text: c.String("text"),
		Shortest: c.Int("min-tokens"), Longest: c.Int("max-tokens"), Groups: c.IntSlice("group"),
		Episodes: c.IntSlice("episode")}
	for flag, to := range map[string]**float64{"min-score": &f.Low, "max-score": &f.High} {
		if v := c.Float64(flag); c.IsSet(flag) {
			*to = &v
		}
	}
	if err := f.Check(); err != nil {
		return f, Usagef("--%w", err)
	}
	return f, nil
}

// wantedEpisodes are those that fit, up to the limit if there is one; a note says what more there is.
func wantedEpisodes(c *cli.Context, source *episodes.Source, file rundir.Stored, f episodes.Filter, limit int) (
	list []episodes.Entry, note string, err error) {
	found, more, place := episodes.Searched{Next: -1}, "", file.Path
	if c.Bool("all-steps") {
		place = source.Path
		found, err = source.Search(c.Context, file.Kind, file.Step, f, limit, 0)
	} else {
		found.Episodes, err = source.Select(c.Context, file, f)
	}
	if err != nil {
		return nil, "", err
	}
	if found.Next >= 0 {
		more = fmt.Sprintf("; steps up to %d were not searched", found.Next)
	}
	left := len(found.Episodes) - limit
	switch {
	case len(found.Episodes) == 0:
		note = fmt.Sprintf("no episode of %s fits", place)
	case limit > 0 && left > 0:
		note = fmt.Sprintf("%d more fit; --limit %d shows them%s", left, left+limit, more)
		found.Episodes = found.Episodes[:limit]
	case more != "":
		note = fmt.Sprintf("%d episodes are enough%s", limit, more)
	}
	return found.Episodes, note, nil
}

// writeEpisodes writes the page of --html.
func writeEpisodes(c *cli.Context, source *episodes.Source, found []episodes.Entry) error {
	var views []*episodes.View
	for _, entry := range found {
		v, err := source.View(c.Context, entry)
		if err != nil {
			return err
		}
		views = append(views, v)
	}
	path := c.String("html")
	last, of := views[len(views)-1].Step, fmt.Sprintf("%s %d", views[0].Kind, views[0].Step)
	if last != views[0].Step {
		of = fmt.Sprintf("%s %d to %d", views[0].Kind, last, views[0].Step)
	}
	title := fmt.Sprintf("%s, %s: %d episodes", filepath.Base(filepath.Clean(source.Path)), of, len(views))
	if err := atomicfile.Write(path, func(w io.Writer) error { return ui.WriteFile(w, title, views) }); err != nil {
		return err
	}
	_, err := fmt.Fprintln(c.App.Writer, path)
	return err
}
