package advantage

import "testing"

func TestKL(t *testing.T) {
	policy, reference := []float32{-1, -9, -.2, -2}, []float32{-1.5, -1, -.1, -1}
	for estimator, want := range map[string][]float64{
		"k1": {.5, 0, -.1, -1}, "abs": {.5, 0, .1, 1}, "k2": {.125, 0, .005, .5},
		"k3": {.106531, 0, .005171, .718282}, "k3+": {.106531, 0, .005171, .718282},
	} {
		got := KL(estimator, policy, reference, bits("1011"))
		near(t, estimator, got, want)
	}
	got := KL("k3", []float32{-50}, []float32{0}, bits("1"))
	near(t, "k3 far away", got, []float64{10})
}

func TestPenalize(t *testing.T) {
	rows := [][]float64{{0, 0, 1}, {2}}
	mean := Penalize(rows, [][]bool{bits("101"), bits("1")}, [][]float64{{.5, 7, .1}, {.4}}, .1)
	near(t, "rewards", append(rows[0], rows[1]...), []float64{-.05, 0, .99, 1.96})
	near(t, "mean divergence", []float64{mean}, []float64{.35})
}

func TestController(t *testing.T) {
	for _, c := range []struct {
		horizon, divergence, want float64
	}{{0, 5, .01}, {1000, .11, .01 * 1.0128}, {1000, 5, .01 * 1.0256}, {1000, 0, .01 * .9744}} {
		k := Controller{Coef: .01, Target: .1, Horizon: c.horizon}
		k.Update(c.divergence, 128)
		near(t, "coefficient", []float64{k.Coef * 100}, []float64{c.want * 100})
	}
}
