package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// refused is what a living server says against a call, "" for other errors.
func refused(err error) string {
	answer := (*jsonrpc.Error)(nil)
	if errors.As(err, &answer) && (answer.Code == jsonrpc.CodeInvalidParams || answer.Code == jsonrpc.CodeInternalError) {
		return answer.Message
	}
	return ""
}

// text is a result for a policy that reads text. Other content is named, with its type and size.
func text(result *sdk.CallToolResult) string {
	var parts []string
	for _, content := range result.Content {
		parts = append(parts, shown(content))
	}
	if len(parts) == 0 && result.StructuredContent != nil {
		structured, _ := json.Marshal(result.StructuredContent) // it came as JSON
		parts = append(parts, string(structured))
	}
	all := strings.Join(parts, "\n")
	switch {
	case all == "" && result.IsError:
		return "error: the tool failed and says nothing of it"
	case all == "":
		return "(no output)"
	case result.IsError && !strings.HasPrefix(strings.ToLower(all), "error"):
		return "error: " + all
	}
	return all
}

func shown(content sdk.Content) string {
	left := func(kind, form string, bytes int) string {
		return fmt.Sprintf("[%s of type %s and %d bytes, which is not shown]", kind, form, bytes)
	}
	switch c := content.(type) {
	case *sdk.TextContent:
		return c.Text
	case *sdk.ImageContent:
		return left("image", c.MIMEType, len(c.Data))
	case *sdk.AudioContent:
		return left("audio", c.MIMEType, len(c.Data))
	case *sdk.ResourceLink:
		return fmt.Sprintf("[link to the resource %s]", c.URI)
	case *sdk.EmbeddedResource:
		switch {
		case c.Resource == nil:
		case c.Resource.Text != "":
			return c.Resource.Text
		default:
			return left("resource "+c.Resource.URI, c.Resource.MIMEType, len(c.Resource.Blob))
		}
	}
	return fmt.Sprintf("[content %T, which is not shown]", content)
}
