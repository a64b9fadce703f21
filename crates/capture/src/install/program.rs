//! The program that is installed: one that needs no libraries, since an initramfs gets those too.

use object::elf::{FileHeader32, FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where packages install the program.
const INSTALLED: [&str; 2] = ["/usr/local/bin/seekless", "/usr/bin/seekless"];

/// Whether a program is static: no segment names an interpreter (`PT_INTERP` in elf(5)), which
/// would load libraries. `None` for other files.
///
/// ```
/// assert_eq!(seekless_capture::install::is_static(b"#!/bin/sh\n"), None);
/// ```
#[must_use]
pub fn is_static(file: &[u8]) -> Option<bool> {
    match object::FileKind::parse(file).ok()? {
        object::FileKind::Elf64 => interpreted::<FileHeader64<object::Endianness>>(file),
        object::FileKind::Elf32 => interpreted::<FileHeader32<object::Endianness>>(file),
        _ => None,
    }
    .map(|interpreted| !interpreted)
}

fn interpreted<H: FileHeader<Endian = object::Endianness>>(file: &[u8]) -> Option<bool> {
    let header = H::parse(file).ok()?;
    let order = header.endian().ok()?;
    let segments = header.program_headers(order, file).ok()?;
    let loads = !segments.is_empty();
    loads.then(|| segments.iter().any(|segment| segment.p_type(order) == PT_INTERP))
}

/// The static program of the same version as the program `itself`, which prints `version`: itself,
/// the one that `make static` puts beside its build, or an installed one.
#[must_use]
pub fn static_program(itself: &Path, version: &str) -> Option<PathBuf> {
    let built = itself.parent().and_then(Path::parent).into_iter().flat_map(|target| {
        let of_library = |library| {
            let machine = format!("{}-unknown-linux-{library}", std::env::consts::ARCH);
            target.join(machine).join("static/seekless")
        };
        ["musl", "gnu"].map(of_library)
    });
    let candidates = std::iter::once(itself.to_path_buf()).chain(built);
    let mut candidates = candidates.chain(INSTALLED.map(PathBuf::from));
    candidates.find(|path| {
        let is_static = std::fs::read(path).is_ok_and(|file| is_static(&file) == Some(true));
        is_static && (path == itself || prints(path, version))
    })
}

/// Whether a program has this version.
fn prints(program: &Path, version: &str) -> bool {
    let said = Command::new(program).arg("--version").output();
    said.is_ok_and(|said| said.status.success() && said.stdout.trim_ascii() == version.as_bytes())
}
