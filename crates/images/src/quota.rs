//! Quotas of the file system in an image that is not in use.

use crate::error::{Error, ErrorKind};
use crate::place::Place;
use seekless_device::BlockDevice;
use seekless_formats::{QuotaOperations, READERS};
use seekless_fs::format::OpenOptions;
use seekless_fs::quota::{OwnerKind, QuotaBook, QuotaChange, QuotaComparison, QuotaSelection};
use seekless_fs::{FsError, Timestamp};
use seekless_source::AccountNames;
use std::path::Path;

/// An owner, as a request names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Owner {
    /// By its number.
    Id(u32),
    /// By a name in the image's own `/etc/passwd`, `/etc/group` or `/etc/projid`.
    Name(Vec<u8>),
}

impl Owner {
    /// An owner from a number in decimal digits, or a name.
    ///
    /// ```
    /// use seekless_images::quota::Owner;
    ///
    /// assert_eq!(Owner::parse("1000"), Owner::Id(1000));
    /// assert_eq!(Owner::parse("www"), Owner::Name(b"www".to_vec()));
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse().ok().filter(|_| is_number) {
            Some(id) => Self::Id(id),
            None => Self::Name(text.as_bytes().to_vec()),
        }
    }
}

/// The quotas of one kind of owners, and their names.
#[derive(Clone, Debug)]
pub struct NamedQuotas {
    /// The quotas.
    pub book: QuotaBook,
    /// Names of the owners; none where only numbers were read.
    pub names: AccountNames,
}

/// Reads the quotas of the file system in an image, and with `with_names` the names of the owners.
///
/// # Errors
/// As [`device`](crate::device()); [`ErrorKind::Unsupported`] for a format or a volume without quotas,
/// [`ErrorKind::Usage`] for a quota file in the selection that is not there, and
/// [`ErrorKind::Corrupt`].
pub fn read(
    path: &Path,
    place: &Place,
    selection: &QuotaSelection,
    with_names: bool,
    options: OpenOptions,
) -> Result<Vec<NamedQuotas>, Error> {
    let device = crate::device(path, place)?;
    let operations = operations(path, device.as_ref())?;
    let about = |error| wrong(error, path);
    let books = (operations.read)(device.clone(), selection, options).map_err(about)?;
    if !with_names {
        let nameless = |book| NamedQuotas { book, names: AccountNames::default() };
        return Ok(books.into_iter().map(nameless).collect());
    }
    let image = seekless_fs::format::open(READERS, device, options).map_err(about)?;
    let named = books.into_iter().map(|book| {
        let names = AccountNames::of_image(image.as_ref(), book.kind)?;
        Ok(NamedQuotas { book, names })
    });
    named.collect::<Result<_, FsError>>().map_err(about)
}

/// Compares the quota files in an image with the usage of all files.
///
/// # Errors
/// As [`read`].
pub fn compare(
    path: &Path,
    place: &Place,
    selection: &QuotaSelection,
) -> Result<QuotaComparison, Error> {
    let device = crate::device(path, place)?;
    let operations = operations(path, device.as_ref())?;
    (operations.compare)(device, selection).map_err(|error| wrong(error, path))
}

/// Updates the usage in the quota files of an image, and returns the differences before. `time` becomes
/// their time of modification. Nothing is written if there are no differences.
///
/// # Errors
/// As [`read`] and [`device_locked`](crate::device_locked); [`ErrorKind::Unsupported`] for a volume that
/// has to be checked first, [`ErrorKind::NoSpace`].
pub fn correct(
    path: &Path,
    place: &Place,
    selection: &QuotaSelection,
    time: Timestamp,
) -> Result<QuotaComparison, Error> {
    let device = crate::device_locked(path, place)?;
    let operations = operations(path, device.as_ref())?;
    let about = |error| wrong(error, path);
    let compared = (operations.compare)(device.clone(), selection).map_err(about)?;
    if !compared.is_clean() {
        (operations.correct)(device, selection, time).map_err(about)?;
    }
    Ok(compared)
}

/// Changes the quota of an owner, or with none the times of all owners of the kind.
///
/// `change` returns the change for the number of the owner, 0 if there is none.
///
/// # Errors
/// As [`correct`]; [`ErrorKind::Usage`] for an unknown name.
pub fn change(
    path: &Path,
    place: &Place,
    selection: &QuotaSelection,
    (kind, owner): (OwnerKind, Option<&Owner>),
    change: &dyn Fn(u32) -> QuotaChange,
    time: Timestamp,
) -> Result<u32, Error> {
    let device = crate::device_locked(path, place)?;
    let operations = operations(path, device.as_ref())?;
    let about = |error| wrong(error, path);
    let id = match owner {
        None => 0,
        Some(Owner::Id(id)) => *id,
        Some(Owner::Name(name)) => {
            let options = OpenOptions::default();
            let image =
                seekless_fs::format::open(READERS, device.clone(), options).map_err(about)?;
            let names = AccountNames::of_image(image.as_ref(), kind).map_err(about)?;
            let unknown = || {
                let (kind, name) = (kind.name(), String::from_utf8_lossy(name));
                Error::usage(format!("the image has no {kind} '{name}'")).about(path.display())
            };
            names.id(name).ok_or_else(unknown)?
        }
    };
    (operations.change)(device, selection, kind, &change(id), time).map_err(about)?;
    Ok(id)
}

fn wrong(error: FsError, image: &Path) -> Error {
    match error {
        FsError::NotFound(path) => Error::usage(format!("no quota file {path}")),
        FsError::Invalid(what) => Error::usage(what),
        error => Error::from(error),
    }
    .about(image.display())
}

/// The operations of a device's format.
fn operations(path: &Path, device: &dyn BlockDevice) -> Result<QuotaOperations, Error> {
    let known = seekless_formats::claim(device)
        .map_err(|error| Error::from(error).about(path.display()))?;
    known.quotas.ok_or_else(|| {
        let what = format!("{} images have no quotas", known.family);
        Error::new(ErrorKind::Unsupported, what).about(path.display())
    })
}
