//! Encodes and decodes pages: each page has one encoding and two digests.

use avfs_types::clock::FileTime;
use avfs_types::encode::{put_bytes, put_number};
use avfs_types::ids::{BlobId, ContentId, DigestKind, LinkId, TreeId};
use avfs_types::path::NAME_BYTES_MAX;

use super::codec::{DecodeError, Decoder, put_time};
use super::page::{
    Body, DirMeta, DirRef, Entry, FifoNode, FileContent, FileNode, LEVEL_MAX, Node, Page, PageRef, Sealed,
    SymlinkNode, Totals,
};

const FORMAT: u8 = 1;
/// The maximum length of a symlink target on Linux.
const TARGET_BYTES_MAX: usize = 4096;

/// The typical encoded size of a page, an entry and a page reference, for allocating buffers in advance.
const PAGE_BYTES: usize = 64;
const ENTRY_BYTES: usize = 96;
const REFERENCE_BYTES: usize = 112;
/// The minimum encoded sizes: of a FIFO entry, and of a page reference with two digests.
const ENTRY_BYTES_MIN: usize = 6;
const REFERENCE_BYTES_MIN: usize = 69;

/// Which of a page's two digests the bytes are for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flavor {
    Storage,
    /// Times left out, and the children's content digests instead of their storage digests.
    Content,
}

const KIND_FILE: u8 = 0;
const KIND_SYMLINK: u8 = 1;
const KIND_FIFO: u8 = 2;
const KIND_DIR: u8 = 3;
const KIND_MASK: u8 = 0x0f;
const FLAG_LINK: u8 = 0x10;
const FLAG_XATTRS: u8 = 0x20;
const FLAG_CHUNKED: u8 = 0x40;

struct Encoder {
    out: Vec<u8>,
    flavor: Flavor,
}

impl Encoder {
    fn time(&mut self, time: FileTime) {
        match self.flavor {
            Flavor::Storage => put_time(&mut self.out, time),
            Flavor::Content => {}
        }
    }

    fn reference(&mut self, tree: &TreeId, content: &ContentId, totals: &Totals) {
        match self.flavor {
            Flavor::Storage => {
                self.out.extend_from_slice(&tree.0);
                self.out.extend_from_slice(&content.0);
            }
            Flavor::Content => self.out.extend_from_slice(&content.0),
        }
        for sum in [totals.entries, totals.bytes, totals.links] {
            put_number(&mut self.out, sum);
        }
    }

    fn entry(&mut self, entry: &Entry) {
        put_bytes(&mut self.out, &entry.name);
        self.node(&entry.node);
    }

    fn node(&mut self, node: &Node) {
        let link = node.link();
        let link_flag = if link.is_some() { FLAG_LINK } else { 0 };
        match node {
            Node::File(file) => {
                let xattrs = if file.xattrs.is_some() { FLAG_XATTRS } else { 0 };
                let chunked = if matches!(file.content, FileContent::Chunked(_)) { FLAG_CHUNKED } else { 0 };
                self.out.push(KIND_FILE | link_flag | xattrs | chunked);
                put_number(&mut self.out, u64::from(file.mode));
                self.time(file.mtime);
                put_number(&mut self.out, file.size);
                self.out.extend_from_slice(&file.content.id().0);
                if let Some(xattrs) = file.xattrs {
                    self.out.extend_from_slice(&xattrs.0);
                }
            }
            Node::Symlink(symlink) => {
                self.out.push(KIND_SYMLINK | link_flag);
                self.time(symlink.mtime);
                put_bytes(&mut self.out, &symlink.target);
            }
            Node::Fifo(fifo) => {
                self.out.push(KIND_FIFO | link_flag);
                put_number(&mut self.out, u64::from(fifo.mode));
                self.time(fifo.mtime);
            }
            Node::Dir(dir) => {
                self.out.push(KIND_DIR);
                self.reference(&dir.tree, &dir.content, &dir.totals);
            }
        }
        if let Some(link) = link {
            self.out.extend_from_slice(&link.0);
        }
    }

    fn meta(&mut self, meta: &DirMeta) {
        self.out.push(if meta.xattrs.is_some() { 1 | FLAG_XATTRS } else { 1 });
        put_number(&mut self.out, u64::from(meta.mode));
        self.time(meta.mtime);
        if let Some(xattrs) = meta.xattrs {
            self.out.extend_from_slice(&xattrs.0);
        }
    }

    fn page(&mut self, meta: Option<&DirMeta>, body: &Body) {
        self.out.push(FORMAT);
        match meta {
            None => self.out.push(0),
            Some(meta) => self.meta(meta),
        }
        match body {
            Body::Leaf(entries) => {
                self.out.push(0);
                put_number(&mut self.out, entries.len() as u64);
                for entry in entries {
                    self.entry(entry);
                }
            }
            Body::Inner { level, pages } => {
                self.out.push(*level);
                put_number(&mut self.out, pages.len() as u64);
                for page in pages {
                    put_bytes(&mut self.out, &page.first);
                    self.reference(&page.tree, &page.content, &page.totals);
                }
            }
        }
    }
}

impl Body {
    /// Encodes and digests the page; with `meta` it is the top of a directory.
    #[must_use]
    pub fn seal(&self, meta: Option<&DirMeta>) -> Sealed {
        let capacity = match self {
            Self::Leaf(entries) => PAGE_BYTES + entries.len() * ENTRY_BYTES,
            Self::Inner { pages, .. } => PAGE_BYTES + pages.len() * REFERENCE_BYTES,
        };
        let encode = |flavor| {
            let mut encoder = Encoder { out: Vec::with_capacity(capacity), flavor };
            encoder.page(meta, self);
            encoder.out
        };
        let data = encode(Flavor::Storage);
        Sealed {
            tree: TreeId(DigestKind::Tree.digest(&data)),
            content: ContentId(DigestKind::Content.digest(&encode(Flavor::Content))),
            totals: self.totals(),
            data,
        }
    }
}

impl Page {
    /// Decodes a page, refusing anything that [`Body::seal`] would not have written.
    pub(crate) fn decode(data: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(data);
        let format = decoder.byte()?;
        if format != FORMAT {
            return Err(DecodeError::Unknown(u64::from(format), "tree format"));
        }
        let meta = decode_meta(&mut decoder)?;
        let level = decoder.byte()?;
        if level > LEVEL_MAX {
            return Err(DecodeError::Rule("it has too many levels"));
        }
        let count = usize::try_from(decoder.number()?).map_err(|_| DecodeError::Number)?;
        let body = if level == 0 {
            let entries = decode_list(&mut decoder, count, ENTRY_BYTES_MIN, decode_entry)?;
            if !entries.is_sorted_by(|a, b| a.name < b.name) {
                return Err(DecodeError::Rule("its entries are not in order"));
            }
            Body::Leaf(entries)
        } else {
            let pages = decode_list(&mut decoder, count, REFERENCE_BYTES_MIN, decode_page_ref)?;
            if pages.is_empty() || !pages.is_sorted_by(|a, b| a.first < b.first) {
                return Err(DecodeError::Rule("its pages are not in order"));
            }
            Body::Inner { level, pages }
        };
        decoder.end()?;
        Ok(Self { meta, body })
    }
}

/// Decodes a list. Each item takes at least `bytes_min` bytes, so no list is longer than its data allows.
fn decode_list<'d, T>(
    decoder: &mut Decoder<'d>,
    count: usize,
    bytes_min: usize,
    decode: impl Fn(&mut Decoder<'d>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    if count > decoder.left() / bytes_min {
        return Err(DecodeError::Short);
    }
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        items.push(decode(decoder)?);
    }
    Ok(items)
}

fn decode_meta(decoder: &mut Decoder<'_>) -> Result<Option<DirMeta>, DecodeError> {
    Ok(match decoder.byte()? {
        0 => None,
        flags if flags & !FLAG_XATTRS == 1 => Some(DirMeta {
            mode: decoder.small()?,
            mtime: decoder.time()?,
            xattrs: optional_blob(decoder, flags)?,
        }),
        flags => return Err(DecodeError::Unknown(u64::from(flags), "page kind")),
    })
}

fn optional_blob(decoder: &mut Decoder<'_>, flags: u8) -> Result<Option<BlobId>, DecodeError> {
    Ok(if flags & FLAG_XATTRS == 0 { None } else { Some(BlobId(decoder.digest()?)) })
}

fn decode_totals(decoder: &mut Decoder<'_>) -> Result<Totals, DecodeError> {
    Ok(Totals { entries: decoder.number()?, bytes: decoder.number()?, links: decoder.number()? })
}

fn decode_page_ref(decoder: &mut Decoder<'_>) -> Result<PageRef, DecodeError> {
    Ok(PageRef {
        first: decode_name(decoder)?,
        tree: TreeId(decoder.digest()?),
        content: ContentId(decoder.digest()?),
        totals: decode_totals(decoder)?,
    })
}

fn decode_name(decoder: &mut Decoder<'_>) -> Result<Vec<u8>, DecodeError> {
    let name = decoder.bytes()?;
    let bad = name.is_empty() || name.len() > NAME_BYTES_MAX || name == b"." || name == b"..";
    if bad || name.iter().any(|b| *b == b'/' || *b == 0) {
        return Err(DecodeError::Rule("it has an invalid file name"));
    }
    Ok(name.to_vec())
}

fn decode_entry(decoder: &mut Decoder<'_>) -> Result<Entry, DecodeError> {
    Ok(Entry { name: decode_name(decoder)?, node: decode_node(decoder)? })
}

fn decode_node(decoder: &mut Decoder<'_>) -> Result<Node, DecodeError> {
    let tag = decoder.byte()?;
    let unknown = DecodeError::Unknown(u64::from(tag), "kind of entry");
    let allowed = match tag & KIND_MASK {
        KIND_FILE => FLAG_LINK | FLAG_XATTRS | FLAG_CHUNKED,
        KIND_SYMLINK | KIND_FIFO => FLAG_LINK,
        KIND_DIR => 0,
        _ => return Err(unknown),
    };
    if tag & !KIND_MASK & !allowed != 0 {
        return Err(unknown);
    }
    let node = match tag & KIND_MASK {
        KIND_FILE => {
            let (mode, mtime, size) = (decoder.small()?, decoder.time()?, decoder.number()?);
            let id = BlobId(decoder.digest()?);
            let chunked = tag & FLAG_CHUNKED != 0;
            let content = if chunked { FileContent::Chunked(id) } else { FileContent::Whole(id) };
            Node::File(FileNode {
                mode,
                mtime,
                size,
                content,
                xattrs: optional_blob(decoder, tag)?,
                link: None,
            })
        }
        KIND_SYMLINK => {
            let mtime = decoder.time()?;
            let target = decoder.bytes()?.to_vec();
            if target.is_empty() || target.len() > TARGET_BYTES_MAX || target.contains(&0) {
                return Err(DecodeError::Rule("it has an invalid symlink target"));
            }
            Node::Symlink(SymlinkNode { mtime, target, link: None })
        }
        KIND_FIFO => Node::Fifo(FifoNode { mode: decoder.small()?, mtime: decoder.time()?, link: None }),
        _ => Node::Dir(DirRef {
            tree: TreeId(decoder.digest()?),
            content: ContentId(decoder.digest()?),
            totals: decode_totals(decoder)?,
        }),
    };
    let link = if tag & FLAG_LINK == 0 { None } else { Some(LinkId(decoder.array()?)) };
    Ok(node.with_link(link))
}

/// Appends an entry without its name, and the metadata of a directory.
pub(crate) fn put_side(out: &mut Vec<u8>, node: &Node, meta: Option<&DirMeta>) {
    let mut encoder = Encoder { out: std::mem::take(out), flavor: Flavor::Storage };
    encoder.node(node);
    match meta {
        None => encoder.out.push(0),
        Some(meta) => encoder.meta(meta),
    }
    *out = encoder.out;
}

/// Decodes what [`put_side`] appended.
pub(crate) fn take_side(decoder: &mut Decoder<'_>) -> Result<(Node, Option<DirMeta>), DecodeError> {
    Ok((decode_node(decoder)?, decode_meta(decoder)?))
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn any_node() -> impl Strategy<Value = Node> {
        let time =
            (any::<i64>(), 0_u32..1_000_000_000).prop_map(|(seconds, nanos)| FileTime { seconds, nanos });
        let link = proptest::option::of(any::<[u8; 16]>().prop_map(LinkId));
        let blob = any::<[u8; 32]>().prop_map(BlobId);
        prop_oneof![
            (
                0..0o10000_u32,
                time.clone(),
                any::<u64>(),
                blob.clone(),
                proptest::option::of(blob),
                link.clone()
            )
                .prop_map(|(mode, mtime, size, id, xattrs, link)| {
                    let content =
                        if size % 2 == 0 { FileContent::Whole(id) } else { FileContent::Chunked(id) };
                    Node::File(FileNode { mode, mtime, size, content, xattrs, link })
                }),
            (time.clone(), proptest::collection::vec(1_u8..=255, 1..50), link.clone())
                .prop_map(|(mtime, target, link)| Node::Symlink(SymlinkNode { mtime, target, link })),
            (0..0o10000_u32, time, link).prop_map(|(mode, mtime, link)| Node::Fifo(FifoNode {
                mode,
                mtime,
                link
            })),
            (any::<[u8; 32]>(), any::<[u8; 32]>(), any::<(u64, u64, u64)>()).prop_map(
                |(tree, content, t)| {
                    let totals = Totals { entries: t.0, bytes: t.1, links: t.2 };
                    Node::Dir(DirRef { tree: TreeId(tree), content: ContentId(content), totals })
                }
            ),
        ]
    }

    fn any_leaf() -> impl Strategy<Value = Body> {
        let name = proptest::collection::vec(any::<u8>(), 1..=255).prop_map(|mut name| {
            name.iter_mut().filter(|b| **b == 0 || **b == b'/').for_each(|b| *b = b'_');
            if name == b"." || name == b".." { b"dots".to_vec() } else { name }
        });
        proptest::collection::btree_map(name, any_node(), 0..40).prop_map(|entries| {
            Body::Leaf(entries.into_iter().map(|(name, node)| Entry { name, node }).collect())
        })
    }

    proptest! {
        #[test]
        fn pages_round_trip(body in any_leaf(), mode in 0..0o10000_u32) {
            let meta = DirMeta { mode, ..DirMeta::default() };
            let sealed = body.seal(Some(&meta));
            let page = Page::decode(&sealed.data).unwrap();
            prop_assert_eq!(&page.body, &body);
            prop_assert_eq!(page.meta, Some(meta));
        }

        #[test]
        fn arbitrary_bytes_never_panic_and_decode_to_themselves(bytes: Vec<u8>) {
            if let Ok(page) = Page::decode(&bytes) {
                prop_assert_eq!(page.body.seal(page.meta.as_ref()).data, bytes);
            }
        }

        #[test]
        fn a_flipped_bit_changes_the_digest(body in any_leaf(), at: prop::sample::Index, bit in 0..8) {
            let sealed = body.seal(None);
            let mut data = sealed.data.clone();
            data[at.index(sealed.data.len())] ^= 1_u8 << bit;
            prop_assert_ne!(DigestKind::Tree.digest(&data), sealed.tree.0);
        }
    }

    #[test]
    fn times_change_the_storage_digest_but_not_the_content_digest() {
        let entry = |seconds| Entry {
            name: b"f".to_vec(),
            node: Node::Fifo(FifoNode { mode: 0o644, mtime: FileTime { seconds, nanos: 0 }, link: None }),
        };
        let (one, two) = (Body::Leaf(vec![entry(1)]).seal(None), Body::Leaf(vec![entry(2)]).seal(None));
        assert_ne!(one.tree, two.tree);
        assert_eq!(one.content, two.content);
    }
}
