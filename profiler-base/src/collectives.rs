//! Names in the marks that the injection library records for collectives of NCCL, and that the join
//! reads.

/// The domain of marks for collectives, written by the NCCL plugin of gpuprof's injection library.
pub const COLLECTIVES_DOMAIN: &str = "NCCL profiler";

/// The fields of marks of [`COLLECTIVES_DOMAIN`].
pub mod fields {
    /// The communicator's hash, equal in all its ranks.
    pub const COMMUNICATOR: &str = "communicator";
    /// The rank in the communicator.
    pub const RANK: &str = "rank";
    /// The number of ranks of the communicator.
    pub const RANKS: &str = "ranks";
    /// The index among the operations of its function in its communicator, or among the sends to or
    /// receives from one peer.
    pub const SEQUENCE: &str = "sequence";
    /// The message size of one rank.
    pub const BYTES: &str = "bytes";
    /// The number of channels that NCCL uses for it.
    pub const CHANNELS: &str = "channels";
    /// The root, or the peer of a send or receive.
    pub const OTHER_RANK: &str = "other rank";
    /// The time at which NCCL began to launch the kernel, by `CLOCK_MONOTONIC`.
    pub const LAUNCH: &str = "launch";
    /// The element type.
    pub const DATATYPE: &str = "datatype";
    /// The algorithm.
    pub const ALGORITHM: &str = "algorithm";
    /// The protocol.
    pub const PROTOCOL: &str = "protocol";
    /// The program's name for the communicator.
    pub const NAME: &str = "communicator name";
}
