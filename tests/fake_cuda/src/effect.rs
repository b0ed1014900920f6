//! What copies and fills do to memory.

/// A change of memory, which is done when its operation runs: within the call, or at each launch of its graph.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Effect {
    /// Kernels do nothing.
    None,
    /// Copies rows of bytes.
    Copy {
        /// The address of the first row to read.
        from: u64,
        /// The address of the first row to write.
        to: u64,
        /// The bytes of a row.
        width: usize,
        /// The number of rows.
        rows: usize,
        /// From one row to the next, in what is read and in what is written.
        pitch: [usize; 2],
    },
    /// Fills memory with a value of 1, 2 or 4 bytes.
    Fill {
        /// The address of the first value.
        to: u64,
        /// The value.
        value: u32,
        /// The bytes of a value.
        size: usize,
        /// The number of values.
        count: usize,
    },
}

impl Effect {
    /// Copies bytes in one piece.
    pub(crate) fn copy(from: u64, to: u64, bytes: usize) -> Self {
        Self::Copy { from, to, width: bytes, rows: 1, pitch: [bytes; 2] }
    }

    /// The bytes that it writes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Copy { width, rows, .. } => width * rows,
            Self::Fill { size, count, .. } => size * count,
        }
    }
}
