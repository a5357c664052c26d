package chat

import (
	"fmt"
	"strings"
	"time"
)

// strftimeLayouts are the directives of strftime in the C locale, as layouts of package time.
var strftimeLayouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'c': "Mon Jan _2 15:04:05 2006", 'd': "02", 'e': "_2",
	'D': "01/02/06",
	'F': "2006-01-02", 'H': "15", 'I': "03", 'j': "002", 'm': "01", 'M': "04", 'p': "PM", 'S': "05", 'T': "15:04:05",
	'x': "01/02/06",
	'X': "15:04:05", 'y': "06", 'Y': "2006", 'z': "-0700", 'Z': "MST",
}

// strftime formats t; directives it does not know stay as they are.
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		directive := format[i]
		if directive == '-' && i+1 < len(format) { // glibc: no padding
			i++
			b.WriteString(strings.TrimLeft(strftime(t, "%"+format[i:i+1]), "0 "))
			continue
		}
		layout, known := strftimeLayouts[directive]
		switch {
		case known:
			b.WriteString(t.Format(layout))
		case directive == 'f':
			fmt.Fprintf(&b, "%06d", t.Nanosecond()/1000)
		case directive == '%':
			b.WriteByte('%')
		default:
			b.WriteByte('%')
			b.WriteByte(directive)
		}
	}
	return b.String()
}
