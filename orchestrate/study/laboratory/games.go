package laboratory

// over ends the episode with a reward: it is paid with the probability p, if that is between 0 and 1.
func over(reward, p float64) []Outcome {
	if p == 1 {
		return []Outcome{{P: 1, Reward: reward, Next: -1, Turn: true}}
	}
	return []Outcome{{P: p, Reward: reward, Next: -1, Turn: true}, {P: 1 - p, Next: -1, Turn: true}}
}

// to leads to a state, in the next turn.
func to(state int, reward, p float64) Outcome {
	return Outcome{P: p, Reward: reward, Next: state, Turn: true}
}

// Games are those that estimators are measured in.
func Games() []Game {
	return []Game{
		{Name: "bandit", About: "one token: a lottery, a small sure reward, or a loss", Horizon: 1, Start: []float64{1},
			States: []State{{Actions: [][]Outcome{over(1, 0.5), over(0.4, 1), over(-0.3, 1)}}},
			Logits: [][]float64{{0.1, -0.2, 0.3}}},
		{Name: "tasks", About: "an easy and a hard question, right or wrong", Horizon: 1, Start: []float64{0.5, 0.5},
			States: []State{{Actions: [][]Outcome{over(1, 0.8), over(1, 0.2)}},
				{Observation: 1, Actions: [][]Outcome{over(1, 0.4), over(0, 1)}}},
			Logits: [][]float64{{0.5, -0.5}, {-1, 1}}},
		reply(), StopChain(3), tools(), walk(), long(),
	}
}

// reply is one turn: the policy answers, or thinks for another token, after which answers are better.
func reply() Game {
	g := Game{Name: "reply", About: "one turn of 1 to 3 tokens: answer, or think before", Horizon: 3,
		Start: []float64{1, 0, 0}, Logits: [][]float64{{-0.2, 0.2}, {0.3, 0}, {0, -0.5}}}
	for t, right := range []float64{0.3, 0.5, 0.6} {
		think := []Outcome{{P: 1, Next: min(t+1, 2)}}
		g.States = append(g.States, State{Observation: t, Actions: [][]Outcome{over(1, right), think}})
	}
	return g
}

// StopChain is turns in which the policy stops, does something useful, which earns 0.5, or does nothing; stopping earns
// more the later it comes.
func StopChain(turns int) Game {
	g := Game{Name: "stop", About: "up to 3 turns in which the policy may stop, earn or idle", Horizon: turns,
		Start: make([]float64, turns)}
	g.Start[0] = 1
	for t := range turns {
		g.States = append(g.States, State{Observation: t, Actions: [][]Outcome{
			over(0.2+0.3*float64(t), 1), {to(min(t+1, turns-1), 0.5, 1)}, {to(min(t+1, turns-1), 0, 1)}}})
		g.Logits = append(g.Logits, []float64{-0.3, 0.2, 0.1 - 0.1*float64(t)})
	}
	return g
}

// tools is two turns: an answer, or a call that works or fails and then an answer.
func tools() Game {
	return Game{Name: "tools", About: "answer, or call a tool that may fail, then answer", Horizon: 2,
		Start: []float64{1, 0, 0}, Logits: [][]float64{{0.2, 0}, {0.4, -0.1}, {-0.3, 0.3}},
		States: []State{
			{Actions: [][]Outcome{over(1, 0.3), {to(1, 0.2, 0.7), to(2, 0, 0.3)}}},
			{Observation: 1, Actions: [][]Outcome{over(1, 0.9), over(1, 0.4)}},
			{Observation: 2, Actions: [][]Outcome{over(1, 0.1), over(1, 0.3)}},
		}}
}

// walk is a corridor in which states are met again.
func walk() Game {
	step := func(state int) []Outcome { return []Outcome{to(state, -0.05, 1)} }
	return Game{Name: "walk", About: "a slippery corridor of three places; states are met again", Horizon: 4,
		Start: []float64{0, 1, 0}, Logits: [][]float64{{-0.2, 0.2}, {0.1, 0}, {0, 0.3}},
		States: []State{
			{Actions: [][]Outcome{step(0), {to(1, -0.05, 0.8), to(0, -0.05, 0.2)}}},
			{Observation: 1, Actions: [][]Outcome{step(0), {to(2, -0.05, 0.8), to(1, -0.05, 0.2)}}},
			{Observation: 2, Actions: [][]Outcome{step(1), over(1, 0.8)}},
		}}
}

// long is up to seven turns of work with an uncertain result, until the policy hands in.
func long() Game {
	g := Game{Name: "long", About: "up to 7 turns of work that may succeed, until the policy hands in", Horizon: 7,
		Start: []float64{1, 0, 0, 0}}
	for done := range 4 {
		next := min(done+1, 3)
		g.States = append(g.States, State{Observation: done, Actions: [][]Outcome{
			over(1, []float64{0.05, 0.3, 0.6, 0.9}[done]),
			{to(next, 0.1, 0.6), to(done, 0, 0.4)}}})
		g.Logits = append(g.Logits, []float64{-1, 0.5 - 0.3*float64(done)})
	}
	return g
}
