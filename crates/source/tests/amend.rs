//! Changes to a whole tree: what a list leaves as it is, and what it cannot ask for.

use seekless_fs::FileKind;
use seekless_fs::acl::{Acl, AclKind};
use seekless_fs::source::Source;
use seekless_fs::tree::Tree;
use seekless_source::{
    AmendError, Amendments, DeviceTable, FileContexts, Labels, LayeredSource, ListError, Manifest,
    ManifestRole, Notices, TableSyntax, TreeOptions,
};
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Shared = Arc<dyn Source + Send>;

/// A directory with lists.
struct Lists(tempfile::TempDir);

impl Lists {
    fn new() -> Self {
        Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory"))
    }

    fn put(&self, text: &str) -> PathBuf {
        let path = self.0.path().join("list");
        fs::write(&path, text).expect("write");
        path
    }

    fn manifest(&self, base: &Shared, role: ManifestRole, text: &str) -> Result<Shared, String> {
        let manifest = Manifest::read(&self.put(text)).map_err(of_list)?;
        let wanted = Amendments { manifest: Some((manifest, role)), ..Amendments::default() };
        wanted.apply(base.clone(), &TreeOptions::default()).map_err(of)
    }

    fn table(&self, base: &Shared, syntax: TableSyntax, text: &str) -> Result<Shared, String> {
        let tables = vec![DeviceTable::read(&self.put(text), syntax).map_err(of_list)?];
        let wanted = Amendments { tables, ..Amendments::default() };
        wanted.apply(base.clone(), &TreeOptions::default()).map_err(of)
    }
}

/// The message of an error in a line, from the number of the line on.
fn of_list(error: ListError) -> String {
    assert!(matches!(error, ListError::Line { .. }), "{error}");
    error.to_string().split_once("list, line ").expect("a line").1.to_string()
}

fn of(error: AmendError) -> String {
    match error {
        AmendError::List(error) => of_list(error),
        AmendError::Fs(error) => panic!("not an error of a line: {error}"),
    }
}

fn nothing() -> Shared {
    Arc::new(LayeredSource::new(Vec::new()).expect("an empty tree"))
}

/// A tree by a manifest; its files are without contents.
fn tree_of(lists: &Lists, text: &str) -> Shared {
    let empty = lists.0.path().join("empty");
    fs::write(&empty, "").expect("write");
    let text = text.replace("EMPTY", &format!("contents={}", empty.display()));
    lists.manifest(&nothing(), ManifestRole::Attributes, &text).expect("a tree")
}

fn xattr(tree: &Tree, path: &str, name: &[u8]) -> Option<Vec<u8>> {
    let node = tree.node(tree.resolve(path.as_bytes()).expect("a file"));
    tree.xattrs(node).iter().find(|it| it.name == name).map(|it| it.value.clone())
}

#[test]
fn a_file_that_is_replaced_keeps_its_attributes() {
    let lists = Lists::new();
    let base = tree_of(
        &lists,
        "./a type=file EMPTY xattr.user.k=dg==\n./l type=link link=a xattr.user.k=dg==\n\
         ./c type=char device=native,1,3 xattr.user.k=dg==\n",
    );
    let more = lists.0.path().join("more");
    fs::write(&more, "more").expect("write");
    let text = format!(
        "./a type=file contents={}\n./l type=link link=b\n./c type=char device=native,1,5\n",
        more.display()
    );
    let changed = lists.manifest(&base, ManifestRole::Attributes, &text).expect("changed");
    for path in ["a", "l", "c"] {
        assert_eq!(xattr(changed.tree(), path, b"user.k"), Some(b"v".to_vec()), "{path}");
    }
    let changed = lists.table(&base, TableSyntax::Genext2fs, "/c c 600 0 0 1 7\n").expect("table");
    assert_eq!(xattr(changed.tree(), "c", b"user.k"), Some(b"v".to_vec()));
}

#[test]
fn an_access_control_list_follows_the_mode() {
    let lists = Lists::new();
    // Owner rwx, user 7 rw-, group r--, mask rw-, others r--.
    let list = "AgAAAAEABwD/////AgAGAAcAAAAEAAQA/////xAABgD/////IAAEAP////8=";
    let name = AclKind::Access.name();
    let text = "./f type=file EMPTY mode=0764 xattr.system.posix_acl_access=LIST\n\
                ./c type=char device=native,1,3 mode=0764 xattr.system.posix_acl_access=LIST\n";
    let base = tree_of(&lists, &text.replace("LIST", list));
    let changed = lists
        .table(&base, TableSyntax::Genext2fs, "/f f 4500 0 0\n/c c 500 0 0 1 3\n")
        .expect("a table");
    for path in ["f", "c"] {
        let value = xattr(changed.tree(), path, name).expect("a list");
        let acl = Acl::parse(&value).expect("parsed").expect("a list");
        assert_eq!((acl.mode(), acl.entries().len()), (0o500, 5), "{path}");
    }
    let same = lists.table(&base, TableSyntax::Makedevs, "/f f -1 1 1\n").expect("a table");
    assert_eq!(xattr(same.tree(), "f", name), xattr(base.tree(), "f", name));
}

#[test]
fn files_behind_symlinks_are_kept_where_they_are() {
    let lists = Lists::new();
    let base = tree_of(
        &lists,
        "./usr/lib type=dir\n./usr/lib/a type=file EMPTY\n./usr/lib/b type=file EMPTY\n\
         ./lib type=link link=usr/lib\n./c type=file EMPTY\n./d type=file hardlink=./c\n",
    );
    let text = "./lib/a type=file\n./d type=file\n./none type=file optional\n";
    let changed = lists.manifest(&base, ManifestRole::Selection, text).expect("selected");
    let tree = changed.tree();
    let kept = |path: &str| tree.resolve(path.as_bytes()).is_some();
    for path in ["usr/lib/a", "lib", "d"] {
        assert!(kept(path), "{path}");
    }
    for path in ["usr/lib/b", "c", "none"] {
        assert!(!kept(path), "{path}");
    }
}

#[test]
fn owners_without_a_source_are_those_of_listed_files() {
    let lists = Lists::new();
    let (passwd, group) = (lists.0.path().join("passwd"), lists.0.path().join("group"));
    fs::write(&passwd, "root:x:0:0::/:\nann:x:9:8::/:\n").expect("write");
    fs::write(&group, "wheel:x:3:\n").expect("write");
    let text = format!(
        "./a type=dir uname=ann gname=wheel\n./etc/passwd type=file uname=root contents={}\n\
         ./etc/group type=file gname=wheel contents={}\n",
        passwd.display(),
        group.display()
    );
    let made = lists.manifest(&nothing(), ManifestRole::Whole, &text).expect("a tree");
    let node = made.tree().node(made.tree().resolve(b"a").expect("a"));
    assert_eq!((node.uid, node.gid), (9, 3));
    let said = lists.manifest(&nothing(), ManifestRole::Whole, "./a type=dir uname=ann\n");
    assert_eq!(said.err().unwrap(), "1: a: user 'ann' is not in the tree's /etc/passwd");
}

#[test]
fn what_no_tree_can_have_is_refused_with_its_line() {
    let lists = Lists::new();
    let base = tree_of(&lists, "./a type=file EMPTY\n");
    let (long, deep) = ("n".repeat(300), "a/".repeat(3000));
    for (text, wanted) in [
        (format!("\n./{long} type=dir\n"), "longer than 255 bytes"),
        (format!("\n./{deep}b type=dir\n"), "a path of more than 4096 bytes"),
        ("\n./a\\000b type=dir\n".into(), "contains a slash or a zero byte"),
        ("\n./s type=link link=\n".into(), "a target of 0 bytes is not allowed"),
        ("\n./a xattr.bogus=eHg=\n".into(), "invalid extended attribute name"),
        ("\n./a xattr.system.posix_acl_access=eHg=\n".into(), "not an access control list"),
        ("\n./c type=char device=native,4096,0\n".into(), "device numbers end at 4095,1048575"),
        ("\n./c type=char device=native,0,1048576\n".into(), "device numbers end at 4095,1048575"),
    ] {
        let said = lists.manifest(&base, ManifestRole::Attributes, &text).err().expect("an error");
        assert!(said.starts_with("2: ") && said.contains(wanted), "{text}: {said}");
    }
    // Directories that are entered make a path longer.
    let nested = "d type=dir\n".repeat(3000);
    let said = lists.manifest(&base, ManifestRole::Attributes, &nested).err().expect("an error");
    assert!(said.contains("a path of more than 4096 bytes"), "{said}");
    for (text, wanted) in [
        (format!("\n/{long} d 755 0 0\n"), "longer than 255 bytes"),
        (format!("\n/{deep}b d 755 0 0\n"), "a path of more than 4096 bytes"),
        ("\n/c c 600 0 0 4096 0\n".into(), "device numbers end at 4095,1048575"),
        ("\n/c c 600 0 0 1 1048575 0 1 2\n".into(), "device numbers end at 4095,1048575"),
        ("/b c 600 0 0 1 0 0 0 1\n/c c 600 0 0 1 0 0 0 1048576\n".into(), "have more than 1048576"),
        ("\n/c c 600 0 0 1 0 0 0 4294967295\n".into(), "COUNT is too large"),
    ] {
        let said = lists.table(&base, TableSyntax::Genext2fs, &text).err().expect("an error");
        assert!(said.starts_with("2: ") && said.contains(wanted), "{text}: {said}");
    }
}

#[test]
fn a_keyword_can_be_unset() {
    let lists = Lists::new();
    let wrong = "0".repeat(64);
    let text = format!(
        "/set sha256={wrong} xattr.user.a=dg== hardlink=./none\n\
         /unset sha256digest xattr.user.a hardlink\n./a type=file EMPTY\n"
    );
    let made = tree_of(&lists, &text);
    assert_eq!(xattr(made.tree(), "a", b"user.a"), None);
}

#[test]
fn steps_of_a_series_may_be_zero() {
    let lists = Lists::new();
    // MINOR + number * INC - START, as genext2fs computes it.
    let made = lists
        .table(&nothing(), TableSyntax::Genext2fs, "/x b 600 0 0 3 5 1 0 3\n")
        .expect("a table");
    let tree = made.tree();
    for path in ["x1", "x2"] {
        let node = tree.node(tree.resolve(path.as_bytes()).expect("a device"));
        let seekless_fs::tree::Payload::Device(number) = node.payload else { panic!("{node:?}") };
        assert_eq!((number.major, number.minor), (3, 4));
    }
}

thread_local! {
    static TOLD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn labelled(lists: &Lists, base: &Shared, contexts: &str) -> Shared {
    let contexts = FileContexts::read(Path::new(&lists.put(contexts))).expect("contexts");
    let labels = Labels { contexts, mount_point: Vec::new(), has_lost_and_found: false };
    let wanted = Amendments { labels: Some(labels), ..Amendments::default() };
    let notices = Notices(|text| TOLD.with_borrow_mut(|told| told.push(text.into())));
    let options = TreeOptions { notices, ..TreeOptions::default() };
    wanted.apply(base.clone(), &options).expect("labelled")
}

#[test]
fn a_file_has_the_context_of_its_first_name_with_one() {
    let lists = Lists::new();
    let base = tree_of(
        &lists,
        "./a type=file EMPTY\n./b type=file hardlink=./a\n./c type=file hardlink=./a\n\
         ./s type=socket\n",
    );
    let made = labelled(&lists, &base, "/a <<none>>\n/b b_t\n/c c_t\n/s -s s_t\n");
    let context = |path| xattr(made.tree(), path, b"security.selinux");
    assert_eq!(context("a"), Some(b"b_t\0".to_vec()));
    assert_eq!(context("s"), Some(b"s_t\0".to_vec()));
    let told = TOLD.take();
    assert_eq!(told, ["c: is another name of b, whose context it has instead of c_t"]);
    let made = labelled(&lists, &base, "/c c_t\n");
    let node = made.tree().node(made.tree().resolve(b"a").expect("a"));
    assert_eq!((node.kind, node.names), (FileKind::Regular, 3));
    assert_eq!(xattr(made.tree(), "a", b"security.selinux"), Some(b"c_t\0".to_vec()));
    assert!(TOLD.take().is_empty());
}
