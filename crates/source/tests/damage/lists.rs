//! Lists that change a tree, as the fuzz targets run them too.

use seekless_fs::FileKind;
use seekless_fs::source::Source;
use seekless_source::{
    AmendError, Amendments, DeviceTable, FileContexts, Labels, LayeredSource, ListError, Manifest,
    ManifestRole, TableSyntax, TreeOptions,
};
use std::path::Path;
use std::sync::{Arc, OnceLock};

type Shared = Arc<dyn Source + Send>;

/// A tree that lists change: a file of each kind that needs no contents.
const BASE: &str = "\
./a type=dir
./a/b type=dir
./a/l type=link link=b
./a/c type=char device=native,1,3 xattr.user.k=dg==
./p type=fifo
./s type=socket
./loop type=link link=loop
";

/// Reads contexts, and finds those of a tree.
pub(crate) fn run_file_contexts(data: &[u8]) {
    let Ok(contexts) = read("contexts", data, FileContexts::read) else { return };
    for path in ["/", "/a", "/a/b", "/usr/lib/x.so.1", "/etc/\n", "/a/b/c/d/e/f/g/h"] {
        for kind in [FileKind::Regular, FileKind::Directory, FileKind::Socket] {
            let _ = contexts.of(path.as_bytes(), kind);
        }
    }
    let labels = Labels { contexts, mount_point: b"/m".to_vec(), has_lost_and_found: true };
    change(Amendments { labels: Some(labels), ..Amendments::default() });
}

/// Changes a tree by a table of devices. The first byte chooses whose table it is.
pub(crate) fn run_device_table(data: &[u8]) {
    let Some((choice, text)) = data.split_first() else { return };
    let syntaxes = [TableSyntax::Genext2fs, TableSyntax::Makedevs];
    let syntax = syntaxes[usize::from(choice % 2)];
    let Ok(table) = read("table", text, |path| DeviceTable::read(path, syntax)) else { return };
    change(Amendments { tables: vec![table], ..Amendments::default() });
}

/// Changes a tree by a manifest. The first byte chooses whether only listed files stay.
pub(crate) fn run_mtree(data: &[u8]) {
    let Some((choice, text)) = data.split_first() else { return };
    let Ok(manifest) = read("mtree", text, Manifest::read) else { return };
    // Other files of this machine are none of its affairs.
    if text.windows(7).any(|word| word == b"content") {
        return;
    }
    let role = [ManifestRole::Attributes, ManifestRole::Selection][usize::from(choice % 2)];
    change(Amendments { manifest: Some((manifest, role)), ..Amendments::default() });
}

/// Reads a list from a file of this thread.
fn read<T>(
    name: &str,
    text: &[u8],
    read: impl FnOnce(&Path) -> Result<T, ListError>,
) -> Result<T, ListError> {
    let (process, thread) = (std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(format!("seekless-{process}-{thread:?}-{name}"));
    std::fs::write(&path, text).expect("write");
    let list = read(&path);
    std::fs::remove_file(&path).expect("remove");
    list
}

fn base() -> Shared {
    static TREE: OnceLock<Shared> = OnceLock::new();
    let made = TREE.get_or_init(|| {
        let empty = Arc::new(LayeredSource::new(Vec::new()).expect("an empty tree"));
        let manifest = read("base", BASE.as_bytes(), Manifest::read).expect("a manifest");
        let manifest = Some((manifest, ManifestRole::Attributes));
        let wanted = Amendments { manifest, ..Amendments::default() };
        wanted.apply(empty, &TreeOptions::default()).expect("a tree")
    });
    made.clone()
}

/// Changes a tree; an error is that of a line. Every file of the result has a path that leads to it.
fn change(wanted: Amendments) {
    match wanted.apply(base(), &TreeOptions::default()) {
        Ok(changed) => {
            let tree = changed.tree();
            for id in tree.ids() {
                assert_eq!(tree.resolve(&tree.path(id)), Some(id));
            }
        }
        Err(AmendError::List(ListError::Line { line, .. })) => assert!(line > 0),
        Err(error) => panic!("{error}"),
    }
}
