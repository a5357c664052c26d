// Package bandit is a one-pull choice between two arms that are named after professions, one safe and one risky. The
// safe arm always pays a little, the risky one pays more on average but seldom: a policy has to guess from the names
// which is which. The pair and its order depend on the seed alone, so that a group shares one prompt; the draw of the
// reward depends on the member too (SetMember).
package bandit
