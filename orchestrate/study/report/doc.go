// Package report writes one self-contained HTML page about one or several runs: what they were, how they ended, curves,
// gradient analysis, sample episodes, and where several runs differ.
//
//	rundir.Run ──▶ page (what is shown) ──▶ page.html (how) ──▶ FILE.html
//
// The page loads nothing and runs nothing: pictures are data URLs, there are no scripts, and a content security policy
// says so to the browser. What policies and environments wrote is text and is escaped as such.
package report
