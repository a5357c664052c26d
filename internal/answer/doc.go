// Package answer reads and compares final answers of mathematics problems.
//
// Boxed finds the answer of a reply. Strict equality is that of the MATH benchmark (Hendrycks et al. 2021): both sides go
// through one list of textual rules and are compared as strings; where the rules fail on either side, the raw strings
// are compared. Lenient equality adds what is provably the same number, expression, list, interval, set, matrix or
// relation, by exact arithmetic where that is possible and by evaluation at many points where it is not.
//
// Nothing here panics or runs long, whatever the text: replies come from models.
package answer
