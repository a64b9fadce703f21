//! The program that is installed: one that needs no libraries, since an initramfs gets those too.

use object::elf::{DF_1_PIE, DT_FLAGS_1, ET_DYN, ET_EXEC, FileHeader32, FileHeader64, PT_INTERP};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where packages install the program.
const INSTALLED: [&str; 2] = ["/usr/local/bin/seekless", "/usr/bin/seekless"];

/// Whether a program is static: no segment names an interpreter (`PT_INTERP` in elf(5)), which
/// would load libraries. `None` for other files, libraries included.
///
/// ```
/// assert_eq!(seekless_capture::install::is_static(b"#!/bin/sh\n"), None);
/// ```
#[must_use]
pub fn is_static(file: &[u8]) -> Option<bool> {
    match object::FileKind::parse(file).ok()? {
        object::FileKind::Elf64 => without_interpreter::<FileHeader64<object::Endianness>>(file),
        object::FileKind::Elf32 => without_interpreter::<FileHeader32<object::Endianness>>(file),
        _ => None,
    }
}

fn without_interpreter<H: FileHeader<Endian = object::Endianness>>(file: &[u8]) -> Option<bool> {
    let header = H::parse(file).ok()?;
    let order = header.endian().ok()?;
    let segments = header.program_headers(order, file).ok()?;
    if segments.iter().any(|segment| segment.p_type(order) == PT_INTERP) {
        return Some(false);
    }
    // Without an interpreter, a library differs from a program that may lie anywhere in memory by a
    // flag only.
    let is_program = match header.e_type(order) {
        ET_EXEC => true,
        ET_DYN => {
            let dynamic = segments.iter().find_map(|it| it.dynamic(order, file).ok().flatten())?;
            let flags = dynamic.iter().find(|it| it.tag(order) == DT_FLAGS_1)?;
            flags.d_val(order).into() & DF_1_PIE.0 != 0
        }
        _ => false,
    };
    is_program.then_some(true)
}

/// The static program of the same version as the program `itself`, which prints `version`: itself,
/// the one that `make static` puts beside its build, or an installed one. Others than `itself` belong
/// to root or to its owner, and nobody else may write to them.
#[must_use]
pub fn static_program(itself: &Path, version: &str) -> Option<PathBuf> {
    let built = target_of(itself).into_iter().flat_map(|target| {
        let of_library = |library| {
            let machine = format!("{}-unknown-linux-{library}", std::env::consts::ARCH);
            target.join(machine).join("static/seekless")
        };
        ["musl", "gnu"].map(of_library)
    });
    let owner = itself.metadata().ok()?.uid();
    let is_trusted = |path: &Path| {
        let file = path.metadata();
        file.is_ok_and(|file| [0, owner].contains(&file.uid()) && file.mode() & 0o022 == 0)
    };
    let candidates = std::iter::once(itself.to_path_buf()).chain(built);
    let mut candidates = candidates.chain(INSTALLED.map(PathBuf::from));
    candidates.find(|path| {
        let is_static = std::fs::read(path).is_ok_and(|file| is_static(&file) == Some(true));
        is_static && (path == itself || is_trusted(path) && prints(path, version))
    })
}

/// Cargo's directory of builds, if a program was built there.
fn target_of(program: &Path) -> Option<&Path> {
    let profile = program.parent()?;
    let target = profile.parent()?;
    target.join("CACHEDIR.TAG").is_file().then_some(target)
}

/// Whether a program has this version.
fn prints(program: &Path, version: &str) -> bool {
    let said = Command::new(program).arg("--version").output();
    said.is_ok_and(|said| said.status.success() && said.stdout.trim_ascii() == version.as_bytes())
}
