// Package dataset reads, prepares and checks files of prompts and answers.
//
// JSON (a list of objects), JSON lines and Parquet are read, whatever their columns are called: the names that
// MATH-500, GSM8K, reasoning-gym and verl's training files use are known, others can be given. Prepared files have
// verl's columns, in the order in which the rldynamic project writes them. Environments play the rows, gyre data
// looks after the files.
package dataset
