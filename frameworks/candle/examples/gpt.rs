//! A small GPT in candle, trained for some steps and asked for some tokens, with the GPU time of every module.
//!
//! The model has spans as those of `candle_transformers`; of the profiler are the three lines with `profiler` in them.
//!
//! ```sh
//! cargo run --release --example gpt -- --save gpt.gpuprof
//! ```
//!
//! `--plain` profiles nothing; with `--nvtx`, too, its spans are ranges for other tools. `--steps N` sets the steps. `--alone`
//! waits for the GPU wherever a range begins or ends, and counts
//! kernels by time alone: what every module launches, by another way.

#[path = "../../checks.rs"]
mod checks;

use std::error::Error;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use candle_core::{D, DType, Device, IndexOp, Module, Result, Tensor};
use candle_nn::{
    AdamW, Embedding, Init, Linear, Optimizer, ParamsAdamW, VarBuilder, VarMap, embedding, linear,
    loss, ops,
};
use checks::Options;
use gpu_profiler_candle::InRange;
use tracing::{Span, info_span, trace_span};
use tracing_subscriber::layer::SubscriberExt;

const VOCABULARY: usize = 256;
const WIDTH: usize = 128;
const HEADS: usize = 4;
const LAYERS: usize = 4;
const CONTEXT: usize = 64;
const BATCH: usize = 8;

/// A normalisation with gradients; the faster kernel of `candle_nn::LayerNorm` has none.
struct Norm {
    weight: Tensor,
    bias: Tensor,
    span: Span,
}

impl Norm {
    fn new(builder: VarBuilder<'_>) -> Result<Self> {
        let weight = builder.get_with_hints(WIDTH, "weight", Init::Const(1.0))?;
        let bias = builder.get_with_hints(WIDTH, "bias", Init::Const(0.0))?;
        Ok(Self { weight, bias, span: trace_span!("norm") })
    }
}

impl Module for Norm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.span.in_scope(|| ops::layer_norm_slow(x, &self.weight, &self.bias, 1e-5))
    }
}

struct Attention {
    qkv: Linear,
    out: Linear,
    span: Span,
}

impl Attention {
    fn new(builder: VarBuilder<'_>) -> Result<Self> {
        let qkv = linear(WIDTH, 3 * WIDTH, builder.pp("qkv"))?;
        let out = linear(WIDTH, WIDTH, builder.pp("out"))?;
        Ok(Self { qkv, out, span: trace_span!("attention") })
    }

    /// `mask` has minus infinity at what a token may not see. `cache` holds keys and values of earlier tokens.
    fn forward(
        &self,
        x: &Tensor,
        mask: Option<&Tensor>,
        cache: Option<&mut Option<(Tensor, Tensor)>>,
    ) -> Result<Tensor> {
        let _entered = self.span.enter();
        let (batch, tokens, _) = x.dims3()?;
        let heads = self.qkv.forward(x)?.reshape((batch, tokens, 3, HEADS, WIDTH / HEADS))?;
        let part = |n: usize| heads.i((.., .., n))?.transpose(1, 2)?.contiguous();
        let (q, mut k, mut v) = (part(0)?, part(1)?, part(2)?);
        if let Some(cache) = cache {
            if let Some((keys, values)) = cache.take() {
                k = Tensor::cat(&[&keys, &k], 2)?;
                v = Tensor::cat(&[&values, &v], 2)?;
            }
            *cache = Some((k.clone(), v.clone()));
        }
        let mut scores = (q.matmul(&k.t()?)? / ((WIDTH / HEADS) as f64).sqrt())?;
        if let Some(mask) = mask {
            scores = scores.broadcast_add(mask)?;
        }
        let y = ops::softmax(&scores, D::Minus1)?.matmul(&v)?;
        self.out.forward(&y.transpose(1, 2)?.reshape((batch, tokens, WIDTH))?)
    }
}

struct Block {
    norm: (Norm, Norm),
    attention: Attention,
    mlp: (Linear, Linear),
    span: Span,
    span_mlp: Span,
}

impl Block {
    fn new(builder: VarBuilder<'_>) -> Result<Self> {
        let norm = |name: &str| Norm::new(builder.pp(name));
        let mlp = (
            linear(WIDTH, 4 * WIDTH, builder.pp("up"))?,
            linear(4 * WIDTH, WIDTH, builder.pp("down"))?,
        );
        let attention = Attention::new(builder.pp("attention"))?;
        let (span, span_mlp) = (trace_span!("layer"), trace_span!("mlp"));
        Ok(Self { norm: (norm("norm1")?, norm("norm2")?), attention, mlp, span, span_mlp })
    }

    fn forward(
        &self,
        x: &Tensor,
        mask: Option<&Tensor>,
        cache: Option<&mut Option<(Tensor, Tensor)>>,
    ) -> Result<Tensor> {
        let _entered = self.span.enter();
        let x = (x + self.attention.forward(&self.norm.0.forward(x)?, mask, cache)?)?;
        let _mlp = self.span_mlp.enter();
        let y = self.mlp.0.forward(&self.norm.1.forward(&x)?)?.gelu()?;
        x + self.mlp.1.forward(&y)?
    }
}

struct Gpt {
    tokens: Embedding,
    positions: Embedding,
    blocks: Vec<Block>,
    norm: Norm,
    head: Linear,
    span: Span,
    span_embedding: Span,
    span_head: Span,
}

type Cache = Vec<Option<(Tensor, Tensor)>>;

impl Gpt {
    fn new(builder: VarBuilder<'_>) -> Result<Self> {
        let block = |n: usize| Block::new(builder.pp(format!("layer{n}")));
        Ok(Self {
            tokens: embedding(VOCABULARY, WIDTH, builder.pp("tokens"))?,
            positions: embedding(CONTEXT, WIDTH, builder.pp("positions"))?,
            blocks: (0..LAYERS).map(block).collect::<Result<_>>()?,
            norm: Norm::new(builder.pp("norm"))?,
            head: linear(WIDTH, VOCABULARY, builder.pp("head"))?,
            span: trace_span!("gpt"),
            span_embedding: trace_span!("embedding"),
            span_head: trace_span!("head"),
        })
    }

    /// Logits of the next token at each place. With a cache, `ids` are the tokens after those in it.
    fn forward(&self, ids: &Tensor, first: usize, mut cache: Option<&mut Cache>) -> Result<Tensor> {
        let _entered = self.span.enter();
        let count = ids.dim(1)?;
        let mut x = self.span_embedding.in_scope(|| {
            let places = Tensor::arange(first as u32, (first + count) as u32, ids.device())?;
            self.tokens.forward(ids)?.broadcast_add(&self.positions.forward(&places)?)
        })?;
        let mask = (count > 1).then(|| mask(count, ids.device())).transpose()?;
        for (n, block) in self.blocks.iter().enumerate() {
            let cache = cache.as_mut().map(|cache| &mut cache[n]);
            x = block.forward(&x, mask.as_ref(), cache)?;
        }
        let _head = self.span_head.enter();
        self.head.forward(&self.norm.forward(&x)?)
    }
}

/// Minus infinity above the diagonal.
fn mask(count: usize, device: &Device) -> Result<Tensor> {
    let row = |i: usize| (0..count).map(move |j| if j > i { f32::NEG_INFINITY } else { 0.0 });
    Tensor::from_iter((0..count).flat_map(row), device)?.reshape((count, count))
}

fn train(model: &Gpt, variables: &VarMap, device: &Device, steps: usize) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    let parameters = ParamsAdamW { lr: 1e-3, ..ParamsAdamW::default() };
    let mut optimizer = AdamW::new(variables.all_vars(), parameters)?.in_range("optimizer");
    for step in 0..steps {
        let start = Instant::now();
        let _step = info_span!("step", step).entered();
        let (input, target) = info_span!("data").in_scope(|| {
            // A text of which the next letter is known.
            let text = (0..BATCH * (CONTEXT + 1)).map(|i| ((i * 7 + step) % 97) as u32);
            let text = Tensor::from_iter(text, device)?.reshape((BATCH, CONTEXT + 1))?;
            Ok::<_, candle_core::Error>((text.i((.., ..CONTEXT))?, text.i((.., 1..))?))
        })?;
        let loss = info_span!("forward").in_scope(|| {
            let logits = model.forward(&input.contiguous()?, 0, None)?.flatten_to(1)?;
            info_span!("loss").in_scope(|| loss::cross_entropy(&logits, &target.flatten_all()?))
        })?;
        optimizer.backward_step(&loss)?;
        device.synchronize()?;
        times.push(start.elapsed());
    }
    Ok(times)
}

fn generate(model: &Gpt, device: &Device, prompt: &[u32], tokens: usize) -> Result<Vec<u32>> {
    let mut cache: Cache = vec![None; LAYERS];
    let mut text = prompt.to_vec();
    let mut next = Tensor::new(prompt, device)?.unsqueeze(0)?;
    for token in 0..tokens {
        let _token = info_span!("token", token).entered();
        let first = text.len() - next.dim(1)?;
        let logits = model.forward(&next, first, Some(&mut cache))?;
        let _sample = info_span!("sample").entered();
        let best = logits.i((0, logits.dim(1)? - 1))?.argmax(0)?.to_scalar::<u32>()?;
        text.push(best);
        next = Tensor::new(&[[best % VOCABULARY as u32]], device)?;
    }
    Ok(text)
}

/// What the model does: training, and tokens one by one.
fn run(options: &Options, device: &Device) -> Result<()> {
    let variables = VarMap::new();
    let model = Gpt::new(VarBuilder::from_varmap(&variables, DType::F32, device))?;
    options.doing("training");
    options.print_times(&train(&model, &variables, device, options.steps)?);
    options.doing("generating");
    let text = generate(&model, device, &[1, 8, 15], 16)?;
    println!("generated {} tokens\n", text.len() - 3);
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut nvtx_alone = false;
    let options = Options::parse(5, |option| {
        nvtx_alone |= option == "--nvtx";
        option == "--nvtx"
    })?;
    if options.plain {
        if nvtx_alone {
            let spans = nvtx::NvtxLayer::new().marks(false).instances(true);
            tracing::subscriber::set_global_default(tracing_subscriber::registry().with(spans))?;
        }
        return Ok(run(&options, &Device::new_cuda(0)?)?);
    }
    let profiler = gpu_profiler_candle::start()?; // before the model is built
    let device = Device::new_cuda(0)?;
    if options.alone {
        static DEVICE: OnceLock<Device> = OnceLock::new();
        DEVICE.get_or_init(|| device.clone());
        checks::synchronise_at_boundaries(|| drop(DEVICE.get().map(Device::synchronize)));
    }
    run(&options, &device)?;
    let profile = profiler.finish()?;
    println!("{}", profile.steps("token").warm());
    options.finish(&profile)
}
