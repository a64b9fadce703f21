//! The cells of a sweep over two keys, laid out by them.

use crate::cells::Cell;
use crate::experiment::{Experiment, System};

/// The seconds of a phase by the two keys of a sweep.
#[derive(Clone, PartialEq, Debug)]
pub struct Grid {
    /// Workload, phase and discipline, and the policy where there are several.
    pub name: String,
    /// The first key's name and values: the rows.
    pub rows: (String, Vec<String>),
    /// The second key's name and values: the columns.
    pub columns: (String, Vec<String>),
    /// Row by row; `None` for cells that were not run.
    pub seconds: Vec<Vec<Option<f64>>>,
}

/// A grid for each phase of each workload, under each discipline and policy;
/// none where the experiment sweeps over fewer keys or more.
#[must_use]
pub fn grids(experiment: &Experiment, cells: &[Cell]) -> Vec<Grid> {
    let systems = || experiment.systems.iter().filter(|system| system.swept.len() == 2);
    let (rows, columns) = (axis(systems(), 0), axis(systems(), 1));
    let (Some(rows), Some(columns)) = (rows, columns) else { return Vec::new() };
    let mut grids: Vec<Grid> = Vec::new();
    for cell in cells {
        let Some(system) = systems().find(|system| system.name == cell.system) else { continue };
        let place = |key: usize, axis: &(String, Vec<String>)| {
            axis.1.iter().position(|value| *value == system.swept[key].1)
        };
        let (Some(row), Some(column)) = (place(0, &rows), place(1, &columns)) else { continue };
        for side in &cell.sides {
            let mut name = format!("{}/{}/{}", cell.workload, cell.phase, cell.discipline);
            if experiment.policies.len() > 1 {
                name = format!("{name}/{}", side.policy);
            }
            let known = grids.iter().position(|grid| grid.name == name);
            let at = known.unwrap_or(grids.len());
            if known.is_none() {
                grids.push(Grid::empty(name, rows.clone(), columns.clone()));
            }
            grids[at].seconds[row][column] = Some(side.seconds);
        }
    }
    grids
}

impl Grid {
    fn empty(name: String, rows: (String, Vec<String>), columns: (String, Vec<String>)) -> Self {
        let seconds = vec![vec![None; columns.1.len()]; rows.1.len()];
        Self { name, rows, columns, seconds }
    }
}

/// A key and its values, in their order of appearance.
fn axis<'a>(systems: impl Iterator<Item = &'a System>, at: usize) -> Option<(String, Vec<String>)> {
    let mut axis: Option<(String, Vec<String>)> = None;
    for system in systems {
        let (key, value) = &system.swept[at];
        let (_, values) = axis.get_or_insert_with(|| (key.clone(), Vec::new()));
        if !values.contains(value) {
            values.push(value.clone());
        }
    }
    axis
}
