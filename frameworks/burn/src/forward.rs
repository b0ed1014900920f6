//! The forward passes of burn's own modules, which have no trait in burn.

use burn::nn::attention::{MhaInput, MhaOutput, MultiHeadAttention};
use burn::nn::conv::{Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d};
use burn::nn::pool::{
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AvgPool1d, AvgPool2d, MaxPool1d, MaxPool2d,
};
use burn::nn::transformer::{
    PositionWiseFeedForward, TransformerDecoder, TransformerDecoderInput, TransformerEncoder,
    TransformerEncoderInput,
};
use burn::nn::{
    BatchNorm, Dropout, Embedding, GroupNorm, InstanceNorm, LayerNorm, Linear, PositionalEncoding,
    RmsNorm,
};
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

/// A forward pass from one input, of burn's modules; implement it for your own to call [`Ranged::forward`](crate::Ranged::forward),
/// or use [`Ranged::run`](crate::Ranged::run).
pub trait Forward<Input> {
    /// What a pass returns.
    type Output;

    /// Makes a pass.
    fn forward(&self, input: Input) -> Self::Output;
}

macro_rules! forward {
    ($($module:ty: [$($generics:tt)*] $input:ty => $output:ty;)*) => {$(
        impl<B: Backend, $($generics)*> Forward<$input> for $module {
            type Output = $output;

            fn forward(&self, input: $input) -> $output {
                <$module>::forward(self, input)
            }
        }
    )*};
}

forward! {
    BatchNorm<B>: [const D: usize] Tensor<B, D> => Tensor<B, D>;
    Conv1d<B>: [] Tensor<B, 3> => Tensor<B, 3>;
    Conv2d<B>: [] Tensor<B, 4> => Tensor<B, 4>;
    Conv3d<B>: [] Tensor<B, 5> => Tensor<B, 5>;
    ConvTranspose1d<B>: [] Tensor<B, 3> => Tensor<B, 3>;
    ConvTranspose2d<B>: [] Tensor<B, 4> => Tensor<B, 4>;
    ConvTranspose3d<B>: [] Tensor<B, 5> => Tensor<B, 5>;
    Embedding<B>: [] Tensor<B, 2, Int> => Tensor<B, 3>;
    GroupNorm<B>: [const D: usize] Tensor<B, D> => Tensor<B, D>;
    InstanceNorm<B>: [const D: usize] Tensor<B, D> => Tensor<B, D>;
    LayerNorm<B>: [const D: usize] Tensor<B, D> => Tensor<B, D>;
    Linear<B>: [const D: usize] Tensor<B, D> => Tensor<B, D>;
    MultiHeadAttention<B>: [] MhaInput<B> => MhaOutput<B>;
    PositionWiseFeedForward<B>: [const D: usize] Tensor<B, D> => Tensor<B, D>;
    PositionalEncoding<B>: [] Tensor<B, 3> => Tensor<B, 3>;
    RmsNorm<B>: [const D: usize] Tensor<B, D> => Tensor<B, D>;
    TransformerDecoder<B>: [] TransformerDecoderInput<B> => Tensor<B, 3>;
    TransformerEncoder<B>: [] TransformerEncoderInput<B> => Tensor<B, 3>;
    AdaptiveAvgPool1d: [] Tensor<B, 3> => Tensor<B, 3>;
    AdaptiveAvgPool2d: [] Tensor<B, 4> => Tensor<B, 4>;
    AvgPool1d: [] Tensor<B, 3> => Tensor<B, 3>;
    AvgPool2d: [] Tensor<B, 4> => Tensor<B, 4>;
    Dropout: [const D: usize] Tensor<B, D> => Tensor<B, D>;
    MaxPool1d: [] Tensor<B, 3> => Tensor<B, 3>;
    MaxPool2d: [] Tensor<B, 4> => Tensor<B, 4>;
}
