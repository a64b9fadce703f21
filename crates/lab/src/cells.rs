//! Cells.
