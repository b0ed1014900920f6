//! A small GPT in candle, trained for some steps and asked for some tokens, with the GPU time of every module.
//!
//! The model has spans as those of `candle_transformers`; of the profiler are the three lines with `profiler` in them.
//!
//! ```sh
//! cargo run --release --example gpt -- --save gpt.gpuprof
//! ```
//!
//! `--plain` profiles nothing; with `--nvtx`, too, its spans are ranges for other tools. `--steps N`, `--layers N` and `--tokens N`
//! set the size, `--devices N` puts an equal part of the layers on each of so many GPUs. `--alone` waits for the GPU wherever a
//! range begins or ends, and counts kernels by time alone: what every module launches, by another way.

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
use gpu_profiler_candle::{InRange, QueryDevice};
use tracing::{Span, info_span, trace_span};
use tracing_subscriber::layer::SubscriberExt;

const VOCABULARY: usize = 256;
const WIDTH: usize = 128;
const HEADS: usize = 4;
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
    device: Device,
    span: Span,
    span_mlp: Span,
}

impl Block {
    fn new(builder: VarBuilder<'_>) -> Result<Self> {
        let device = builder.device().clone();
        let norm = |name: &str| Norm::new(builder.pp(name));
        let mlp = (
            linear(WIDTH, 4 * WIDTH, builder.pp("up"))?,
            linear(4 * WIDTH, WIDTH, builder.pp("down"))?,
        );
        let attention = Attention::new(builder.pp("attention"))?;
        let (span, span_mlp) = (trace_span!("layer"), trace_span!("mlp"));
        let norm = (norm("norm1")?, norm("norm2")?);
        Ok(Self { norm, attention, mlp, device, span, span_mlp })
    }

    fn forward(
        &self,
        x: &Tensor,
        mask: Option<&Tensor>,
        cache: Option<&mut Option<(Tensor, Tensor)>>,
    ) -> Result<Tensor> {
        let _entered = self.span.enter();
        let x = &x.to_device(&self.device)?;
        let mask = mask.map(|mask| mask.to_device(&self.device)).transpose()?;
        let mask = mask.as_ref();
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
    /// A model with this many layers, the first of them on the first device, the last, and what comes after it, on the last one.
    fn new(builder: VarBuilder<'_>, layers: usize, devices: &[Device]) -> Result<Self> {
        let block = |n: usize| {
            let device = devices[n * devices.len() / layers].clone();
            Block::new(builder.pp(format!("layer{n}")).set_device(device))
        };
        let last = builder.clone().set_device(devices[devices.len() - 1].clone());
        Ok(Self {
            tokens: embedding(VOCABULARY, WIDTH, builder.pp("tokens"))?,
            positions: embedding(CONTEXT, WIDTH, builder.pp("positions"))?,
            blocks: (0..layers).map(block).collect::<Result<_>>()?,
            norm: Norm::new(last.pp("norm"))?,
            head: linear(WIDTH, VOCABULARY, last.pp("head"))?,
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

fn train(
    model: &Gpt,
    variables: &VarMap,
    devices: &[Device],
    steps: usize,
) -> Result<Vec<Duration>> {
    let device = &devices[0];
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
            info_span!("loss").in_scope(|| {
                let target = target.flatten_all()?.to_device(logits.device())?;
                loss::cross_entropy(&logits, &target)
            })
        })?;
        optimizer.backward_step(&loss)?;
        devices.iter().try_for_each(Device::synchronize)?;
        times.push(start.elapsed());
    }
    Ok(times)
}

fn generate(model: &Gpt, device: &Device, prompt: &[u32], tokens: usize) -> Result<Vec<u32>> {
    let mut cache: Cache = vec![None; model.blocks.len()];
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

/// The size of what is done.
struct Size {
    layers: usize,
    tokens: usize,
    devices: usize,
}

/// What the model does: training, and tokens one by one.
fn run(options: &Options, size: &Size, devices: &[Device]) -> Result<()> {
    let variables = VarMap::new();
    let builder = VarBuilder::from_varmap(&variables, DType::F32, &devices[0]);
    let model = Gpt::new(builder, size.layers, devices)?;
    options.doing("training");
    options.print_times(&train(&model, &variables, devices, options.steps)?);
    options.doing("generating");
    let text = generate(&model, &devices[0], &[1, 8, 15], size.tokens)?;
    println!("generated {} tokens\n", text.len() - 3);
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut nvtx_alone = false;
    let mut size = Size { layers: 4, tokens: 16, devices: 1 };
    let options = Options::parse(5, |option, value| {
        match option {
            "--nvtx" => nvtx_alone = true,
            "--layers" => size.layers = value()?.parse()?,
            "--tokens" => size.tokens = value()?.parse()?,
            "--devices" => size.devices = value()?.parse()?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if !(1..=size.layers).contains(&size.devices) {
        return Err("--devices needs a number from 1 to that of the layers".into());
    }
    let devices = || (0..size.devices).map(Device::new_cuda).collect::<Result<Vec<_>>>();
    if options.plain {
        if nvtx_alone {
            let spans = nvtx::NvtxLayer::new().marks(false).instances(true);
            tracing::subscriber::set_global_default(tracing_subscriber::registry().with(spans))?;
        }
        return Ok(run(&options, &size, &devices()?)?);
    }
    let profiler = gpu_profiler_candle::start()?; // before the model is built
    let devices = devices()?;
    if options.alone {
        static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();
        DEVICES.get_or_init(|| devices.clone());
        checks::synchronise_at_boundaries(|| {
            drop(DEVICES.get().map(|devices| devices.iter().try_for_each(Device::synchronize)));
        });
    }
    run(&options, &size, &devices)?;
    let profile = profiler.finish()?;
    println!("{}", profile.steps("token").warm());
    let on_stream = |device| Ok(profile.query().on_device(device)?.kernels().count());
    let on_streams =
        devices.iter().map(on_stream).collect::<std::result::Result<Vec<_>, Box<dyn Error>>>()?;
    println!("kernels on the streams of the devices: {on_streams:?}");
    options.check("on_streams", &format!("{on_streams:?}"));
    options.finish(&profile)
}
