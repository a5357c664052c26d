// Package bandit holds slot machines: a few arms that pay at random, and a policy that has to find the best one.
//
// Bandit is RAGEN's choice between two arms named after professions, one safe and one risky. The safe arm always
// pays a little, the risky one pays more on average but seldom: a policy has to guess from the names which is
// which. TwoArmedBandit and GaussianBandit are the machines of RAGEN's first generation: a choice between two names
// that pay about a normal distribution each, and several pulls of arms whose normal distributions are dealt anew
// for every seed.
//
// The arms and their order depend on the seed alone, so that a group shares one prompt; what a pull pays depends on the
// member too.
package bandit
