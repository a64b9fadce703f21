//! All boots of an experiment.

use crate::images::Images;
use crate::replay::Replay;
use crate::{BootResults, Subject};
use seekless_images::Error;
use seekless_lab::boots::outcome::BootId;
use seekless_lab::boots::{BootMachine, State};
use seekless_serve::testbed::ServedDisk;
use signal_hook::iterator::Signals;
use std::path::Path;
use std::process::Command;

/// The programs that a measurement runs.
#[derive(Clone, Copy)]
pub struct Programs<'a> {
    /// The command that serves a disk of a model.
    pub disk: &'a dyn Fn(&str, &ServedDisk<'_>) -> Result<Command, Error>,
    /// Writes a new image in the order of a trace. The paths are those of the trace, of the old
    /// image and of the new one.
    pub relayout: &'a dyn Fn(&Path, &Path, &Path) -> Result<(), Error>,
}

/// The measurement of an experiment.
pub struct Measurement<'a> {
    subject: &'a Subject,
    temp_dir: &'a Path,
    programs: Programs<'a>,
}

impl<'a> Measurement<'a> {
    /// A measurement with images in `temp_dir`.
    #[must_use]
    pub fn new(subject: &'a Subject, temp_dir: &'a Path, programs: Programs<'a>) -> Self {
        Self { subject, temp_dir, programs }
    }

    /// Measures boots; those of a state share one image. Each is kept in `results`, and `done` is
    /// called.
    ///
    /// # Errors
    /// [`ErrorKind::System`](seekless_images::ErrorKind::System) if the kernel cannot do something,
    /// or when a signal arrives; errors of the programs and of the results.
    pub fn run(
        &self,
        boots: &[BootId],
        signals: &mut Signals,
        results: &mut BootResults,
        done: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        let experiment = self.subject.experiment();
        for machine in &experiment.machines {
            for &seed in &experiment.seeds {
                let of_it: Vec<&BootId> = boots
                    .iter()
                    .filter(|id| id.machine == machine.name && id.seed == seed)
                    .collect();
                if !of_it.is_empty() {
                    let images =
                        Images::new(self.subject, machine, seed, self.temp_dir, self.programs);
                    images
                        .and_then(|images| {
                            self.all_states(machine, images, &of_it, signals, results, done)
                        })
                        .map_err(|error| error.about(&machine.name))?;
                }
            }
        }
        Ok(())
    }

    fn all_states(
        &self,
        machine: &BootMachine,
        mut images: Images<'_>,
        ids: &[&BootId],
        signals: &mut Signals,
        results: &mut BootResults,
        done: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        // In the order in which the images are made from each other.
        let states =
            [State::Fresh, State::Aged, State::ReaddirOrder, State::ProfileOrder, State::Optimized];
        for state in states {
            let of_state: Vec<&&BootId> = ids.iter().filter(|id| id.state == state).collect();
            if of_state.is_empty() {
                continue;
            }
            let image = images.of(state, signals)?;
            let replay = Replay {
                trace: self.subject.trace(),
                machine,
                image: &image,
                temp_dir: self.temp_dir,
                disk: self.programs.disk,
            };
            for id in of_state {
                let counted = replay.measure(id.prefetched, signals)?;
                done();
                results.keep(counted.told(self.subject, id))?;
            }
        }
        Ok(())
    }
}
