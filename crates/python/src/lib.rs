//! The Python module `seekless`, over the crate of that name. This is `seekless._seekless`; the
//! files in `python/seekless` are plain Python: exceptions, file objects, `fsspec`.
//!
//! Each file has a class or function of the module, with as little code as possible: code of use to
//! others belongs in the crate `seekless`. `work.rs` runs long operations without the lock of the
//! interpreter, and stops them for it.
//!
//! ```python
//! import pathlib, tempfile
//! import seekless as sk
//!
//! work = pathlib.Path(tempfile.mkdtemp())
//! (work / "tree").mkdir()
//! (work / "tree" / "hello").write_text("world")
//! sk.build(work / "tree", work / "disk.img", label="data")
//! image = sk.open(work / "disk.img")
//! assert image.read("/hello") == b"world"
//! ```

mod build;
mod check;
mod compare;
mod errors;
mod files;
mod grow;
mod image;
mod layout_list;
mod messages;
mod optimize;
mod paths;
mod quotas;
mod records;
mod score;
mod snapshots;
mod summary;
mod trace;
mod work;

use pyo3::prelude::*;

/// Images of file systems, laid out by recorded access.
#[pymodule]
mod _seekless {
    #[pymodule_export]
    use crate::build::{
        Built, BuiltDisk, BuiltLayer, BuiltPartition, build, build_disk, build_layers,
    };
    #[pymodule_export]
    use crate::check::{Checked, Finding, Place, check};
    #[pymodule_export]
    use crate::compare::{Chunks, Difference, compare, sharing};
    #[pymodule_export]
    use crate::files::{Entry, File, Metadata, Volume, Walk};
    #[pymodule_export]
    use crate::grow::{Growth, grow};
    #[pymodule_export]
    use crate::image::{Image, open};
    #[pymodule_export]
    use crate::layout_list::{Listed, layout_list};
    #[pymodule_export]
    use crate::optimize::{Gain, Optimized, OtherRun, optimize};
    #[pymodule_export]
    use crate::quotas::{
        OwnerQuota, QuotaBalance, QuotaCheck, QuotaDifference, QuotaReport, QuotaUsage, Quotas,
    };
    #[pymodule_export]
    use crate::score::{Figures, Prefetch, Request, Requests, Score, score};
    #[pymodule_export]
    use crate::snapshots::{Snapshot, Snapshots};
    #[pymodule_export]
    use crate::summary::{Summarized, merge_summaries, summarize};
    #[pymodule_export]
    use crate::trace::Trace;
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::messages::collect();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
