// Package episode defines a played episode and its JSONL form, the file format between playing, updating and analysing.
//
// One episode is one line, one JSON object:
//
//	{"step": 7, "group": 3, "episode": 50, "tag": "sokoban", "seed": 10059, "ids": [1, 319, 88], "mask": [0, 0, 1],
//	 "logprobs": [null, null, -0.31], "rewards": [[2, 10.9]], "score": 10.9, "success": true, "stop": "terminated",
//	 "turns": [[0, 2, 3]]}
//
// A line may go on with "contexts": [0, 57], the starts of the sequences that ids holds one after another (absent: it
// is one sequence), and with "components": {"correctness": [[2, 1.0]], "format": [[2, 0.5]]}, the named components of
// the reward as (token index, reward) pairs, unweighted. score stays the number that training uses.
//
// ids, mask, group and rewards are required. The rest may be absent in hand-written files and then means: logprobs
// unknown (nil), turns one per run of policy tokens, score the sum of the rewards, episode the line's position in the
// file, and zero values for step, seed, tag, stop and success. A log-prob is null where the mask is 0; a number there
// is read and ignored.
package episode
