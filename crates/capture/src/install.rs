//! Installation of the recorder of boots into a system's initramfs, and its removal.

mod hooks;
mod program;
mod rebuild;

pub use hooks::Tool;
pub use program::{is_static, static_program};
pub use rebuild::rebuild;

use hooks::MARK;
use seekless_fs::term::{Term, Text};
use seekless_images::output::{NO_INPUTS, Output};
use seekless_images::{Error, ErrorKind};
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Path of the recorder, in the system and in its initramfs.
const PROGRAM: &str = "usr/lib/seekless/boot-recorder";

/// Path of the receipt, which contains the tool and the created directories.
const RECEIPT: &str = "usr/lib/seekless/boot-recorder.receipt";

/// Writes the recorder, the hooks and a receipt below `root`. `options` are those of the recorder.
/// A failure undoes everything.
///
/// # Errors
/// `ErrorKind::System`, also if another file has one of the paths.
pub fn install(
    root: &Path,
    tool: Tool,
    program: &[u8],
    options: &[String],
) -> Result<Installed, Error> {
    let quoted: String = options.iter().map(|option| format!(" {}", quote(option))).collect();
    let mut files: Vec<(&str, Vec<u8>, u32)> = Vec::new();
    for (path, text) in tool.scripts(&quoted) {
        files.push((path, text.into_bytes(), 0o755));
    }
    files.push((PROGRAM, program.to_vec(), 0o755));
    let before = receipt(root)?;
    if let Some(other) = before.as_ref().filter(|before| before.tool != tool) {
        let message = format!("the recorder is installed for {}", other.tool.name());
        return Err(Error::new(ErrorKind::System, message)
            .hint(Text::from("remove it first: ").then(Term::RemovalFromBoot)));
    }
    for (path, ..) in &files {
        is_free_or_ours(root, path, before.is_some())?;
    }
    let mut installed = Installed { root: root.into(), undo: Vec::new(), files: Vec::new() };
    let written = installed.write(&files, tool, before);
    match written {
        Ok(()) => Ok(installed),
        Err(failure) => {
            installed.undo();
            Err(failure)
        }
    }
}

/// An installation, until it is kept or undone.
pub struct Installed {
    root: PathBuf,
    undo: Vec<Undo>,
    /// The files written, without the receipt.
    pub files: Vec<PathBuf>,
}

enum Undo {
    /// The former contents of a file; `None` if it did not exist.
    File(PathBuf, Option<Vec<u8>>),
    Directory(PathBuf),
}

impl Installed {
    fn write(
        &mut self,
        files: &[(&str, Vec<u8>, u32)],
        tool: Tool,
        before: Option<Receipt>,
    ) -> Result<(), Error> {
        let mut made = before.map(|before| before.made).unwrap_or_default();
        for (path, ..) in files {
            self.make_directories(path, &mut made)?;
        }
        for (path, contents, mode) in files {
            self.put(path, contents, *mode)?;
            self.files.push(self.root.join(path));
        }
        let lines: String = made.iter().map(|dir| format!("{dir}\n")).collect();
        self.put(RECEIPT, format!("{}\n{lines}", tool.name()).as_bytes(), 0o644)
    }

    /// Creates missing directories above a file.
    fn make_directories(&mut self, file: &str, made: &mut Vec<String>) -> Result<(), Error> {
        for (at, _) in file.match_indices('/') {
            let Some(dir) = file.get(..at) else { continue };
            let path = within(&self.root, dir)?;
            match fs::create_dir(&path) {
                Ok(()) => {
                    self.undo.push(Undo::Directory(path));
                    made.push(dir.into());
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io(path.display(), &error)),
            }
        }
        Ok(())
    }

    fn put(&mut self, path: &str, contents: &[u8], mode: u32) -> Result<(), Error> {
        let path = within(&self.root, path)?;
        let old = read(&path)?;
        put(&path, contents, mode)?;
        self.undo.push(Undo::File(path, old));
        Ok(())
    }

    /// Restores the former state.
    pub fn undo(self) {
        for undo in self.undo.into_iter().rev() {
            // Files that cannot be restored stay as they are; the original failure is reported.
            let _ = match undo {
                Undo::File(path, Some(old)) => {
                    let mode = path.metadata().map_or(0o755, |meta| meta.permissions().mode());
                    put(&path, &old, mode).ok()
                }
                Undo::File(path, None) => fs::remove_file(path).ok(),
                Undo::Directory(path) => fs::remove_dir(path).ok(),
            };
        }
    }
}

/// Removes the installation below `root`. Returns its tool.
///
/// # Errors
/// `ErrorKind::System`, also where no recorder is installed.
pub fn remove(root: &Path) -> Result<(Tool, Vec<PathBuf>), Error> {
    let Some(receipt) = receipt(root)? else {
        let message = format!("{}: no recorder of boots is installed", root.display());
        return Err(Error::new(ErrorKind::System, message));
    };
    let scripts = receipt.tool.scripts("");
    let paths = scripts.iter().map(|(path, _)| *path).chain([PROGRAM]);
    let mut files = Vec::new();
    for path in paths {
        is_free_or_ours(root, path, true)?;
        files.push(within(root, path)?);
    }
    // Last, so that an interrupted removal can be repeated.
    for path in files.iter().cloned().chain([within(root, RECEIPT)?]) {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io(path.display(), &error));
            }
            _ => {}
        }
    }
    for dir in receipt.made.iter().rev() {
        // A directory that contains other files by now stays.
        let _ = fs::remove_dir(within(root, dir)?);
    }
    Ok((receipt.tool, files))
}

/// The tool of a system: the requested one, or the installed one.
///
/// # Errors
/// `ErrorKind::Unsupported` if the system lacks that tool, or both; `ErrorKind::Usage` if it has
/// both and none is requested.
pub fn tool_of(root: &Path, asked: Option<Tool>) -> Result<Tool, Error> {
    let there = |tool: Tool| tool.signs().iter().any(|sign| root.join(sign).exists());
    let lacking = |what: &str| {
        Error::new(ErrorKind::Unsupported, format!("{}: {what} is not installed", root.display()))
    };
    if let Some(tool) = asked {
        return if there(tool) { Ok(tool) } else { Err(lacking(tool.name())) };
    }
    match Tool::ALL.into_iter().filter(|tool| there(*tool)).collect::<Vec<_>>()[..] {
        [tool] => Ok(tool),
        [] => Err(lacking("neither initramfs-tools nor dracut")),
        _ => {
            let what = Text::from("both initramfs-tools and dracut are installed: use ");
            Err(Error::usage(what.then(Term::InitramfsTool)))
        }
    }
}

/// The receipt of an earlier run.
struct Receipt {
    tool: Tool,
    /// The directories that it created, outer ones first.
    made: Vec<String>,
}

fn receipt(root: &Path) -> Result<Option<Receipt>, Error> {
    let path = within(root, RECEIPT)?;
    let Some(bytes) = read(&path)? else { return Ok(None) };
    let wrong = |line: &str| {
        let message = format!("{}: not a receipt of this program: {line:?}", path.display());
        Error::new(ErrorKind::Corrupt, message)
    };
    let text = String::from_utf8(bytes).map_err(|_| wrong("not UTF-8"))?;
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let tool = Tool::ALL.into_iter().find(|tool| tool.name() == first);
    let tool = tool.ok_or_else(|| wrong(first))?;
    let scripts = tool.scripts("");
    let above = |dir: &str| {
        let below = |file: &str| file.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'));
        below(PROGRAM) || scripts.iter().any(|(file, _)| below(file))
    };
    let made: Vec<String> = lines.map(String::from).collect();
    match made.iter().find(|dir| !above(dir)) {
        Some(dir) => Err(wrong(dir)),
        None => Ok(Some(Receipt { tool, made })),
    }
}

/// A path below `root`, refused if a symlink on the way leads out of it.
fn within(root: &Path, path: &str) -> Result<PathBuf, Error> {
    let failed = |error| Error::io(root.display(), &error);
    let root = root.canonicalize().map_err(failed)?;
    let whole = root.join(path);
    let dir = whole.ancestors().skip(1).find_map(|dir| dir.canonicalize().ok());
    if dir.is_some_and(|dir| dir.starts_with(&root)) {
        return Ok(whole);
    }
    Err(Error::new(
        ErrorKind::System,
        format!("{}: a symbolic link leads out of {}", whole.display(), root.display()),
    ))
}

/// Refuses to overwrite files of others. The program and its receipt have a directory of their own;
/// a script is identified by a line in it.
fn is_free_or_ours(root: &Path, path: &str, installed: bool) -> Result<(), Error> {
    let whole = within(root, path)?;
    let Some(contents) = read(&whole)? else { return Ok(()) };
    let mark = MARK.as_bytes();
    let ours = match path {
        PROGRAM => installed,
        _ => contents.windows(mark.len()).any(|window| window == mark),
    };
    if ours {
        return Ok(());
    }
    let message = format!("{}: was not written by this program", whole.display());
    Err(Error::new(ErrorKind::System, message))
}

/// The contents of a regular file; `None` if it does not exist.
fn read(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let failed = |error| Error::io(path.display(), &error);
    match path.symlink_metadata() {
        Ok(meta) if meta.is_file() => fs::read(path).map(Some).map_err(failed),
        Ok(_) => {
            let message = format!("{}: not a regular file", path.display());
            Err(Error::new(ErrorKind::System, message))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

fn put(path: &Path, contents: &[u8], mode: u32) -> Result<(), Error> {
    let failed = |error| Error::io(path.display(), &error);
    let output = Output::create(path, true, NO_INPUTS)?;
    let mut file = output.file()?;
    file.write_all(contents).map_err(failed)?;
    file.set_permissions(Permissions::from_mode(mode)).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    output.finish()
}

/// Quotes a word for the shell.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_shell() {
        let word = "a'b \"$c\" `d`";
        let output = std::process::Command::new("sh")
            .args(["-c", &format!("printf %s {}", quote(word))])
            .output()
            .unwrap();
        assert_eq!(output.stdout, word.as_bytes());
    }
}
