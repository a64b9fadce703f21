//! A disk backed by a file, with the times of a modelled device: requests are counted, and may take
//! as long as on the device.

mod closed_loop;
mod counters;
mod engine;
mod log;
mod served;

pub use counters::{Counters, Report};
pub(crate) use engine::Kind;
pub use engine::{BeforePhase, Clock, Disk};
pub use served::{DiskMount, serve};

use seekless_fs::term::{Term, Text};
use seekless_images::Error;
use seekless_images::output::in_the_way;
use seekless_units::ByteLen;
use std::fs::{File, OpenOptions};
use std::path::Path;

/// Opens an image for reading and writing; `create` makes one of that size, all zeros, which must
/// not exist yet.
///
/// # Errors
/// [`ErrorKind::System`](seekless_images::ErrorKind::System) if it is missing, or exists and should
/// be created; I/O errors.
pub fn open_image(path: &Path, create: Option<ByteLen>) -> Result<File, Error> {
    let failed = |error| Error::io(path.display(), &error);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(create.is_some());
    let file = options.open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            let subject = Text::from(format!("{} (use ", path.display())).then(Term::Create);
            Error::io_of(subject.then(" ").then(Term::Size).then(" to create it)"), &error)
        }
        std::io::ErrorKind::AlreadyExists => {
            let hint = Text::from("without ").then(Term::Create).then(" it is served as it is");
            in_the_way(path, hint)
        }
        _ => failed(error),
    })?;
    if let Some(size) = create {
        file.set_len(size.get()).map_err(failed)?;
    }
    Ok(file)
}
