// Package answer finds and compares the final answers of mathematics problems, so that a reply can be graded.
//
// Boxed finds the answer of a reply. Under the strict rules, those of the MATH benchmark (Hendrycks et al. 2021),
// both sides go through Normalize and are compared as texts. EqualLenient adds what is provably the same value;
// package algebra below this one decides that.
//
// Nothing here panics or runs long, whatever the text: replies come from models.
package answer
