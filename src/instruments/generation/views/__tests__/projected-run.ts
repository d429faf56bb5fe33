import { SeededRandom } from '../../../../protocol/seeded-random';
import type { ITensorRow } from '../../../../store/tensor-data';
import { WrittenRun } from '../../../../store/__tests__/written-run';

/** What is written and traced. */
export interface IWritten {
  /** Prompts, a word a token. */
  readonly prompts: readonly string[];
  readonly layers?: readonly number[];
  readonly features?: number;
  readonly generation?: number;
  /** Step of its tensors. */
  readonly step?: number;
  readonly compressor?: string;
  readonly seed?: number;
  /** Changes the vector of a token. */
  readonly change?: (vector: Float32Array, sequence: number, position: number, layer: number) => void;
}

const FLAG = 'HiddenStates';

/** Let texts be written whose vectors lie about a place of each word, turned a little from layer to layer. The last word of each was never read. */
export function writeVectors(
  run: WrittenRun,
  {
    prompts,
    layers = [0],
    features = 8,
    generation = 1,
    step = generation,
    compressor = `Tile(tiles=${features}, reduction='mean')`,
    seed = 1,
    change = () => undefined
  }: IWritten
): void {
  const texts = prompts.map(prompt => prompt.split(/(?= )/));
  const length = Math.max(...texts.map(words => words.length)) - 1;
  const words = [...new Set(texts.flat())];
  const random = new SeededRandom(seed);
  const spread = Array.from({ length: features }, (_, at) => 3 * 0.55 ** at);
  const places = words.map(() => spread.map(size => size * random.centred()));
  const noise = texts.map(() =>
    Array.from({ length }, () => spread.map(size => 0.2 * size * random.centred()))
  );
  run.generated(generation, { prompts: [...prompts] }, { first_step: step, last_step: step });
  texts.forEach((text, sequence) =>
    run.write(
      'tokens',
      ...text.map((piece, position) => ({
        step,
        generation,
        sequence,
        position,
        kind: 'prompt',
        text: piece,
        piece,
        id: words.indexOf(piece),
        tensor_step: position < text.length - 1 ? step : -1,
        tensor_offset: length - text.length + 1 + position
      }))
    )
  );
  for (const layer of layers) {
    const values = new Float32Array(texts.length * length * features);
    texts.forEach((text, sequence) => {
      for (let position = 0; position < text.length - 1; position += 1) {
        const at = (sequence * length + length - text.length + 1 + position) * features;
        const vector = values.subarray(at, at + features);
        vector.set(
          spread.map(
            (_, feature) =>
              (places[words.indexOf(text[position] ?? '')]?.[feature] ?? 0) +
              (noise[sequence]?.[position]?.[feature] ?? 0)
          )
        );
        turnPair(vector, layer * 0.9);
        change(vector, sequence, position, layer);
      }
    });
    run.add({
      step,
      layer,
      flag: FLAG,
      phase: 'generate',
      compressor,
      sourceShape: [texts.length, length, compressor === 'NoOp()' ? features : 64],
      shape: [texts.length, length, features],
      values
    } satisfies Partial<ITensorRow>);
  }
}

function turnPair(vector: Float32Array, angle: number): void {
  const [x = 0, y = 0] = vector;
  vector[0] = x * Math.cos(angle) - y * Math.sin(angle);
  vector[1] = x * Math.sin(angle) + y * Math.cos(angle);
}

/** A run of two prompts over four layers. */
export function projectedRun(more: Partial<IWritten> = {}): WrittenRun {
  const run = new WrittenRun();
  run.connection = { kind: 'recorded' };
  writeVectors(run, {
    prompts: [
      'The cat sat on the mat and the dog sat on the log .',
      'A bird sang in the tree while the cat slept on the mat in the sun .'
    ],
    layers: [0, 1, 2, 3],
    ...more
  });
  return run;
}
