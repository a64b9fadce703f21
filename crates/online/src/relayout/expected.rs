//! The expected state of a volume after a plan.

use super::survey::Survey;
use seekless_fs::plan::{ObjectId, Placed};
use seekless_fs::{BlockMap, Mapping};
use seekless_layout::planner::planned::{Places, mappings};
use seekless_units::Ino;
use std::collections::HashMap;

/// The places of files of which some move.
pub(crate) struct Expected {
    moved: HashMap<Ino, Vec<Mapping>>,
}

impl Expected {
    /// The data of these objects at the given locations.
    pub(crate) fn new(survey: &Survey, moved: &HashMap<ObjectId, Vec<Placed>>) -> Self {
        let place = |(&object, data): (&ObjectId, &Vec<Placed>)| {
            let file = survey.file(object);
            (file.ino, mappings(data, &file.runs))
        };
        Self { moved: moved.iter().map(place).collect() }
    }
}

impl Places for Expected {
    fn moved(&self, ino: Ino, mut map: BlockMap) -> BlockMap {
        if let Some(runs) = self.moved.get(&ino) {
            // Blocks behind the end of the file stay.
            let end = runs.last().map_or(0, |run| run.lbn.get() + run.extent.len);
            let beyond = map.runs.iter().filter(|run| run.lbn.get() >= end).copied();
            map.runs = runs.iter().copied().chain(beyond).collect();
        }
        map
    }
}
