//! Recording files as frames, taken apart and put together again with right checksums: files that a writer with a defect,
//! or an attacker could have written.

/// A frame: its kind and content.
pub type Frame = ([u8; 4], Vec<u8>);

/// The frames of a file of format 3.
pub fn frames(bytes: &[u8]) -> Vec<Frame> {
    assert_eq!(&bytes[..8], b"GPUPROF\x03");
    let mut frames = Vec::new();
    let mut rest = &bytes[8..];
    while !rest.is_empty() {
        let length = u64::from_le_bytes(rest[16..24].try_into().unwrap()) as usize;
        frames.push((rest[..4].try_into().unwrap(), rest[32..32 + length].to_vec()));
        rest = &rest[32 + length.next_multiple_of(8)..];
    }
    frames
}

/// The file of format 3 with these frames.
pub fn file(frames: &[Frame]) -> Vec<u8> {
    let mut bytes = b"GPUPROF\x03".to_vec();
    let mut previous = crc32fast::hash(&bytes);
    for (number, (kind, content)) in (0_u64..).zip(frames) {
        let mut padded = content.clone();
        padded.resize(content.len().next_multiple_of(8), 0);
        let mut rest = number.to_le_bytes().to_vec();
        rest.extend((content.len() as u64).to_le_bytes());
        rest.extend(crc32fast::hash(&padded).to_le_bytes());
        rest.extend(previous.to_le_bytes());
        previous = crc32fast::hash(&[&kind[..], &rest].concat());
        for part in [&kind[..], &previous.to_le_bytes(), &rest, &padded] {
            bytes.extend_from_slice(part);
        }
    }
    bytes
}

/// The file of format 3 with right checksums, whose contents were changed in place.
pub fn sealed(bytes: &[u8]) -> Vec<u8> {
    file(&frames(bytes))
}

/// The frames of a file of format 1 or 2.
pub fn old_frames(bytes: &[u8]) -> Vec<Frame> {
    assert!(bytes.starts_with(b"GPUPROF") && bytes[7] < 3);
    let mut frames = Vec::new();
    let mut rest = &bytes[8..];
    while !rest.is_empty() {
        let length = u64::from_le_bytes(rest[4..12].try_into().unwrap()) as usize;
        frames.push((rest[..4].try_into().unwrap(), rest[12..12 + length].to_vec()));
        rest = &rest[12 + length..];
    }
    frames
}

/// The file of format 2 with these frames.
pub fn old_file(frames: &[Frame]) -> Vec<u8> {
    let mut bytes = b"GPUPROF\x02".to_vec();
    for (kind, content) in frames {
        for part in [&kind[..], &(content.len() as u64).to_le_bytes(), content] {
            bytes.extend_from_slice(part);
        }
    }
    bytes
}

/// The head of a log's frame, and its words.
pub fn log(content: &[u8]) -> (serde_json::Value, Vec<u64>) {
    let length = u64::from_le_bytes(content[..8].try_into().unwrap()) as usize;
    let head = serde_json::from_slice(&content[8..8 + length]).unwrap();
    let words = content[8 + length..].as_chunks::<8>().0;
    (head, words.iter().copied().map(u64::from_le_bytes).collect())
}

/// The content of a log's frame.
pub fn log_content(head: &serde_json::Value, words: &[u64]) -> Vec<u8> {
    let head = serde_json::to_vec(head).unwrap();
    let mut content = (head.len() as u64).to_le_bytes().to_vec();
    content.extend(head);
    content.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    content
}
