// Package sudoku fills 4×4, 9×9 and 16×16 grids with numbers so that no row, column or box holds one twice.
package sudoku
