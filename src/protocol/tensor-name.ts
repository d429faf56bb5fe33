export interface ITensorName {
  /**
   * Layer index as the name has it (canonical names count from 0); null for tensors outside of the layers.
   */
  readonly layer: number | null;
  /**
   * What comes before the index ('decoder.layers'); 'layer' where nothing does, '(global)' without a layer.
   */
  readonly stack: string;
  /**
   * What comes after it, without an expert's index: the same text in every layer and expert. '(layer)' where
   * nothing does.
   */
  readonly item_type: string;
  /** First component of `item_type` ('mlp'). */
  readonly family: string;
  /** Last component of `item_type` ('weight', 'output0'). */
  readonly kind: string;
  /** `item_type` without its last component. */
  readonly module_type: string | null;
  /** Whether it goes into a module or comes out of it. */
  readonly role: 'input' | 'output' | null;
  /** Global expert index. */
  readonly expert: number | null;
}

const STACKS = new Set(
  'layer layers block blocks h resblocks transformer_blocks decoder_layers encoder_layers'.split(' ')
);
const BODIES = new Set(['encoder', 'decoder', 'transformer', 'module', 'model', 'backbone']);
const EXPERT_WORDS = ['expert', 'experts'];
// Numbers after these count something inside a layer.
const INNER_WORDS = 'expert experts head heads rank ranks shard shards adapter adapters'.split(' ');
const ENOUGH = 6;

/**
 * Return what a name says. Python's twin is `megalens/protocol/tensor_name.py`; both read
 * `protocol/fixtures/moments/names.json`.
 *
 * The layer is the number that most probably is one, by the word before it: `layers.3`, `h.3`,
 * `multihead_layers.3`, `encoder.3`, never `experts.3` or `head.3`. Of equals it is the first.
 */
export function parseName(name: string): ITensorName {
  const all = name.split(/[./]/);
  // What a cast loses is named after what is cast: "fc1/input0/activation:float8_e4m3fn".
  const cast = all.length > 1 && all[all.length - 1]?.includes(':') ? all.splice(-1) : [];
  const { expert, tokens } = withoutExpert(all);
  const at = layerAt(tokens);
  const before = tokens.slice(0, Math.max(at, 0)).join('.');
  const items = tokens.slice(at + 1);
  if (items.length === 0) {
    items.push('(layer)');
  }
  const role = /^(input|output)[0-9]*$/.exec(items[items.length - 1] ?? '')?.[1];
  items.push(...cast);
  const kind = items[items.length - 1] ?? '';
  return {
    layer: at < 0 ? null : Number(tokens[at]),
    stack: at < 0 ? '(global)' : before || 'layer',
    item_type: items.join('.'),
    family: items[0] ?? '',
    kind,
    module_type: items.slice(0, -1).join('.') || null,
    role: role === 'input' || role === 'output' ? role : null,
    expert
  };
}

function withoutExpert(tokens: readonly string[]): { expert: number | null; tokens: readonly string[] } {
  const at = tokens.findIndex((token, index) => {
    const before = wordBefore(tokens, index);
    return isNumber(token) && hasWord(before, EXPERT_WORDS) && !tellsLayer(before);
  });
  if (at >= 0) {
    return { expert: Number(tokens[at]), tokens: tokens.filter((_, index) => index !== at) };
  }
  const most = tokens.slice(0, -1);
  const grouped = /^(weight|bias)([0-9]{1,9})$/.exec(tokens[tokens.length - 1] ?? '');
  if (grouped && most.some(token => hasWord(token.toLowerCase(), EXPERT_WORDS))) {
    return { expert: Number(grouped[2]), tokens: [...most, grouped[1] ?? ''] };
  }
  return { expert: null, tokens };
}

/** Index of the layer's token, -1 where there is none. */
function layerAt(tokens: readonly string[]): number {
  let best = -1;
  let bestScore = ENOUGH - 1;
  tokens.forEach((token, at) => {
    const score = isNumber(token) ? scoreOf(tokens, at) : -1;
    if (score > bestScore) {
      best = at;
      bestScore = score;
    }
  });
  return best;
}

function scoreOf(tokens: readonly string[], at: number): number {
  const before = wordBefore(tokens, at);
  let score = at + 1 < tokens.length ? 1 : 0;
  if (STACKS.has(before)) {
    score += 12;
  } else if (BODIES.has(before)) {
    score += 6;
  }
  if (tellsLayer(before)) {
    score += 8;
  } else if (hasWord(before, INNER_WORDS)) {
    score -= 24;
  }
  if (before === 'layers' && wordBefore(tokens, at - 1) === 'mtp_model_layer') {
    score += 20;
  }
  return score;
}

const wordBefore = (tokens: readonly string[], at: number): string => (tokens[at - 1] ?? '').toLowerCase();

const tellsLayer = (before: string): boolean => before.includes('layer') || before.includes('block');

function hasWord(token: string, words: readonly string[]): boolean {
  return token.split('_').some(word => words.includes(word));
}

const isNumber = (token: string): boolean => /^[0-9]{1,9}$/.test(token);
