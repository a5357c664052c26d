// Gyre trains language-model agents with reinforcement learning and shows why the training moves the way it does.
package main
