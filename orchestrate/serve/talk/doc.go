// Package talk answers the messages of a conversation with the next turn of the model, whichever API they came by.
//
//	talks := talk.New(server, sessions, "call")
//	turn, err := talks.Open(r, talk.Ask{Messages: messages, Offer: offer}) // starts the replies
//	err = turn.Play(func(p talk.Piece, whole *talk.Reply) error { … })     // text as it is said; in the end the calls
//
// A request becomes token ids (by the chat template, contents of messages as ordinary text) and n requests of the host
// that differ in their seeds. A [Sessions] may give prompts in place of the template, and is told of every reply: so a
// training gateway keeps a conversation's tokens as they were drawn.
package talk
