// Package rubikscube is the pocket cube, 2×2×2: turn its faces until each shows one colour.
package rubikscube
