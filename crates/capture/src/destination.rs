//! The destination of a trace: a file, standard output, or a device that leads out of a virtual
//! machine.

use rustix::termios::{OptionalActions, tcdrain, tcgetattr, tcsetattr};
use seekless_images::Error;
use seekless_images::output::{NO_INPUTS, Output};
use seekless_layout::recording::Assembled;
use seekless_layout::trace::{Writer, write_packed};
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Writes the trace, compressed with zstd if its name ends in `.zst`. A file gets its name when it
/// is complete.
///
/// # Errors
/// `ErrorKind::System`, `ErrorKind::NoSpace`.
pub fn store(path: &Path, header: &Map<String, Value>, assembled: &Assembled) -> Result<(), Error> {
    let failed = |error| Error::io(path.display(), &error);
    if is_stdout(path) {
        // A reader that has closed the pipe is no failure.
        return match write(path, io::stdout().lock(), header, assembled) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(failed(error)),
            _ => Ok(()),
        };
    }
    if path.metadata().is_ok_and(|meta| meta.file_type().is_char_device()) {
        let device = File::options().write(true).open(path).map_err(failed)?;
        raw(&device).map_err(failed)?;
        write(path, &device, header, assembled).map_err(failed)?;
        // A terminal may still be sending; other devices need no wait.
        let _ = tcdrain(&device);
        return Ok(());
    }
    let output = Output::create(path, true, NO_INPUTS)?;
    write(path, output.file()?, header, assembled).map_err(failed)?;
    output.finish()
}

/// Whether a trace of this name goes to standard output.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn write(
    path: &Path,
    out: impl Write,
    header: &Map<String, Value>,
    assembled: &Assembled,
) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    write_packed(path, &mut out, |out| {
        let mut writer = Writer::new(out, header)?;
        assembled.events.iter().try_for_each(|event| writer.write(event))
    })?;
    out.flush()
}

/// Makes a serial line send bytes unchanged, without a carriage return before each line feed. Other
/// devices are unchanged.
fn raw(device: &File) -> io::Result<()> {
    let Ok(mut settings) = tcgetattr(device) else { return Ok(()) };
    settings.make_raw();
    Ok(tcsetattr(device, OptionalActions::Now, &settings)?)
}
