import { rotated, rotateOnto, type IRotation, type IFeatures } from '../../projection/features';
import { Projector, type UmapRun } from '../../projection/projector';
import type { ProjectionOptions } from '../../../../protocol/views.generated';
import { inRanges } from '../../../../protocol/ranges';
import { generationOf, isUnderWay, readGenerations, type IGeneration } from '../../store/generations';
import type { IRunSource, SourceChange } from '../../../../store/source';
import type { ITensorShape } from '../../../../store/tensor-data';
import { flagInfo } from '../../../../views/shared/describe';
import { GenerationReaders, TextVectors, type ILayerVectors } from './text-vectors';

/** A row and how alike it is to what was asked about. */
export interface ILike {
  readonly row: number;
  /** Cosine similarity, -1 to 1. */
  readonly similarity: number;
}

/** Compares vectors about the mean of all by the cosine of the angle between them. */
export class Similarity {
  constructor(private readonly _features: IFeatures) {
    const { rows } = _features;
    this._lengths = Float64Array.from({ length: rows }, (_, row) => lengthOf(this.vectorOf(row)));
  }

  /** The features of a row about their mean. */
  vectorOf(row: number): Float32Array {
    const { columns, values } = this._features;
    return values.subarray(row * columns, (row + 1) * columns);
  }

  meanOf(rows: readonly number[]): Float64Array {
    const mean = new Float64Array(this._features.columns);
    for (const row of rows) {
      this.vectorOf(row).forEach((value, column) => (mean[column] = (mean[column] ?? 0) + value));
    }
    return mean.map(value => value / Math.max(1, rows.length));
  }

  /** How alike each row is to a vector; 0 where one of them has no length. */
  to(vector: Float32Array | Float64Array): Float64Array {
    const length = lengthOf(vector);
    return this._lengths.map((own, row) => {
      const product = own * length;
      return product > 0 ? dot(this.vectorOf(row), vector) / product : 0;
    });
  }

  /** The rows that are most alike to a vector, most alike first. */
  nearest(vector: Float32Array | Float64Array, count: number, but: (row: number) => boolean): ILike[] {
    const found: ILike[] = [];
    this.to(vector).forEach((similarity, row) => {
      const last = found[found.length - 1];
      if (but(row) || (found.length === count && last && similarity <= last.similarity)) {
        return;
      }
      const at = found.findIndex(each => similarity > each.similarity);
      found.splice(at < 0 ? found.length : at, 0, { row, similarity });
      found.length = Math.min(found.length, count);
    });
    return found;
  }

  private readonly _lengths: Float64Array;
}

export const lengthOf = (vector: Float32Array | Float64Array): number => Math.sqrt(dot(vector, vector));

function dot(a: Float32Array | Float64Array, b: Float32Array | Float64Array): number {
  let sum = 0;
  for (let at = 0; at < a.length; at += 1) {
    sum += (a[at] as number) * (b[at] as number);
  }
  return sum;
}

export interface IPlaneRequest {
  /** Principal components, counted from 1. */
  readonly across: number;
  readonly up: number;
  readonly standardise: boolean;
}

/** Vectors of a layer on a plane of two of their principal components. */
export interface IPlane {
  readonly layer: number;
  /** `[tokens, 2]`; NaN for those that are left out. */
  readonly coordinates: Float64Array;
  /** Part of the variance along each axis as it is drawn, 0 to 1. */
  readonly ratios: readonly [number, number];
  readonly features: IFeatures;
  /** How it was turned onto the layer before, and which one that is; null where it was not. */
  readonly turn: (IRotation & { readonly onto: number }) | null;
  /** Tokens with values that are not finite. */
  readonly notFinite: number;
  readonly residual: number;
  readonly source: Omit<ILayerVectors, 'vectors'>;
}

/** Where each token lies on the plane of a layer. */
type Coordinates = Pick<IPlane, 'layer' | 'coordinates'>;

/** Makes planes and remembers where they lie, so that only the layers that are new to it are read again. */
export class Planes {
  constructor(private readonly _projector: Projector) {}

  /**
   * Return the plane of a layer; null where nothing of it is here.
   * @param chain - Layers, ascending, each rotated onto the one before; the last is the wanted one.
   */
  async of(
    key: string,
    chain: readonly number[],
    request: IPlaneRequest,
    read: (layer: number) => Promise<ILayerVectors | null>
  ): Promise<IPlane | null> {
    if (key !== this._key) {
      this.forget();
      this._key = key;
    }
    let before: Coordinates | null = null;
    let plane: IPlane | null = null;
    for (const layer of chain) {
      const isLast = layer === chain[chain.length - 1];
      const known: Coordinates | undefined = isLast ? undefined : this._coordinates.get(layer);
      if (known === undefined) {
        plane = this._last?.layer === layer ? this._last : await this._make(layer, request, before, read);
        if (key !== this._key) {
          return plane;
        }
        if (plane) {
          this._coordinates.set(layer, { layer, coordinates: plane.coordinates });
        }
      }
      before = known ?? plane ?? before;
      plane = isLast ? plane : null;
    }
    this._last = plane;
    return plane;
  }

  /** What was learnt holds no more. */
  forget(): void {
    this._key = '';
    this._last = null;
    this._coordinates.clear();
  }

  private async _make(
    layer: number,
    { across, up, standardise }: IPlaneRequest,
    before: Coordinates | null,
    read: (layer: number) => Promise<ILayerVectors | null>
  ): Promise<IPlane | null> {
    const found = await read(layer);
    if (found === null) {
      return null;
    }
    const { vectors, ...source } = found;
    const { features, scores, components, residual } = await this._projector.components(
      () => ({ ...vectors, values: vectors.values.slice() }),
      Math.max(across, up),
      standardise
    );
    const coordinates = new Float64Array(2 * vectors.rows).fill(NaN);
    features.kept.forEach((token, row) => {
      coordinates[2 * token] = scores[row * components + across - 1] ?? 0;
      coordinates[2 * token + 1] = scores[row * components + up - 1] ?? 0;
    });
    const turn = before && rotateOnto(coordinates, before.coordinates);
    const drawn = turn ? rotated(coordinates, turn) : coordinates;
    return {
      layer,
      coordinates: drawn,
      ratios: [ratioOf(drawn, 0, features), ratioOf(drawn, 1, features)],
      features,
      turn: turn && before ? { ...turn, onto: before.layer } : null,
      notFinite: vectors.rows - features.rows - source.missing - source.unfitting,
      residual,
      source
    };
  }

  private _key = '';
  private _last: IPlane | null = null;
  private readonly _coordinates = new Map<number, Coordinates>();
}

/** Part of the variance along an axis. */
function ratioOf(coordinates: Float64Array, axis: 0 | 1, { rows, variance }: IFeatures): number {
  let sum = 0;
  for (let at = axis; at < coordinates.length; at += 2) {
    const place = coordinates[at] ?? NaN;
    sum += Number.isNaN(place) ? 0 : place * place;
  }
  return variance > 0 ? sum / Math.max(1, rows - 1) / variance : 0;
}

export type ProjectionChoice = Readonly<Required<ProjectionOptions>>;

/** Fewest points that make a picture. */
export const LEAST_POINTS = 3;

export interface IProjected {
  readonly kind: 'projected';
  readonly generations: readonly IGeneration[];
  readonly text: TextVectors;
  readonly plane: IPlane;
  /** Where the tokens are drawn, `[tokens, 2]`; NaN for those that are left out. */
  readonly coordinates: Float64Array;
  /** UMAP under way, or done; null for principal components, and while a text is being written. */
  readonly umap: UmapRun | null;
  readonly similarity: () => Similarity;
}

export type Unprojected =
  | { readonly kind: 'no-generation'; readonly generations: readonly IGeneration[] }
  | { readonly kind: 'no-token'; readonly generations: readonly IGeneration[] }
  | { readonly kind: 'no-axis' }
  | { readonly kind: 'no-row'; readonly generations: readonly IGeneration[] }
  | { readonly kind: 'few'; readonly plane: IPlane; readonly points: number };

export type Projection = IProjected | Unprojected;

/** Reads and projects once for all parts of the view, and again when there is more. */
export class ProjectionReader {
  constructor(private readonly _source: IRunSource) {
    this._rows = new GenerationReaders(_source);
  }

  /** What the run has of the flag. */
  shape: ITensorShape = { parts: [], layers: [] };

  /** Whether news of the run changes the picture. */
  concerns(change: SourceChange): boolean {
    if (change.kind !== 'rows' || !['generations', 'tokens', 'tensors'].includes(change.stream)) {
      return false;
    }
    const { firstStep, lastStep, stream } = change;
    if (stream === 'tensors') {
      const [first, last] = this._text?.steps ?? [-Infinity, Infinity];
      if (lastStep < first || firstStep > last) {
        return false;
      }
      this._rows.came(firstStep, lastStep);
      this._planes.forget();
    }
    this._reading = null;
    return true;
  }

  /** Read and project. */
  read(options: ProjectionChoice, signal: AbortSignal, waits: (layer: number) => void): Promise<Projection> {
    const { across, flag, generations, keep_axes, layer, method, part, standardise, up } = options;
    const key = JSON.stringify([across, flag, generations, keep_axes, layer, method, part, standardise, up]);
    if (this._reading?.key !== key) {
      const projection = this._read(options, signal, waits);
      const reading = { key, projection };
      this._reading = reading;
      const forget = (): void => {
        this._reading = this._reading === reading ? null : this._reading;
      };
      // Who checks again, where there was nothing, asks anew.
      projection.then(({ kind }) => (kind === 'projected' ? undefined : forget()), forget);
    }
    return this._withUmap(this._reading.projection, options);
  }

  /** Begin UMAP anew after it was stopped. */
  restart(): void {
    this._dropUmap();
  }

  dispose(): void {
    this._dropUmap();
  }

  private async _read(
    options: ProjectionChoice,
    signal: AbortSignal,
    waits: (layer: number) => void
  ): Promise<Projection> {
    const { flag, keep_axes, layer, part, standardise } = options;
    const [all, shape] = await Promise.all([
      readGenerations(this._source, signal),
      this._source.shapeOf(flag)
    ]);
    this.shape = shape;
    const generations = chosenOf(all, options.generations);
    const axis = (flagInfo(this._source.hello, flag)?.axes ?? ['position', 'feature']).indexOf('position');
    if (generations.length === 0) {
      return { kind: 'no-generation', generations: all };
    }
    if (axis < 0) {
      return { kind: 'no-axis' };
    }
    const whole = await TextVectors.read(this._source, this._rows, generations, signal);
    if (whole.tokens.length === 0) {
      return { kind: 'no-token', generations };
    }
    const query = { flag, axis, ...((part ?? shape.parts[0]) ? { part: part ?? shape.parts[0] ?? '' } : {}) };
    const text = await whole.thin(query, layer, standardise, signal);
    this._text = text;
    const before = keep_axes ? shape.layers.filter(each => each < layer) : [];
    const request = { ...axesOf(options), standardise };
    const plane = await this._planes.of(
      JSON.stringify([text.key, query, request, keep_axes]),
      [...before, layer],
      request,
      each => {
        waits(each);
        return text.of(query, each, signal);
      }
    );
    if (plane === null) {
      return { kind: 'no-row', generations };
    }
    const points = plane.features.rows;
    if (points < LEAST_POINTS || plane.features.variance === 0) {
      return { kind: 'few', plane, points };
    }
    let similarity: Similarity | null = null;
    return {
      kind: 'projected',
      generations,
      text,
      plane,
      coordinates: plane.coordinates,
      umap: null,
      similarity: () => (similarity ??= new Similarity(plane.features))
    };
  }

  private async _withUmap(reading: Promise<Projection>, options: ProjectionChoice): Promise<Projection> {
    const projection = await reading;
    if (
      projection.kind !== 'projected' ||
      options.method !== 'umap' ||
      projection.generations.some(isUnderWay)
    ) {
      this._dropUmap();
      return projection;
    }
    const { features, coordinates } = projection.plane;
    const start = Float64Array.from({ length: 2 * features.rows }, (_, at) => {
      const token = features.kept[at >> 1] ?? 0;
      return coordinates[2 * token + (at & 1)] ?? 0;
    });
    const { neighbors, seed } = options;
    const key = `${neighbors} ${seed}`;
    if (this._umap?.of !== projection.plane || this._umap.key !== key) {
      this._dropUmap();
      this._umap = {
        of: projection.plane,
        key,
        run: this._projector.umap(features, start, { neighbors, seed })
      };
    }
    const { run } = this._umap;
    return { ...projection, umap: run, coordinates: laidOut(projection, start, run) };
  }

  private _dropUmap(): void {
    this._umap?.run.stop();
    this._umap = null;
  }

  private readonly _rows: GenerationReaders;
  private readonly _projector = new Projector();
  private readonly _planes = new Planes(this._projector);
  private _text: TextVectors | null = null;
  private _reading: { readonly key: string; readonly projection: Promise<Projection> } | null = null;
  private _umap: { readonly of: IPlane; readonly key: string; readonly run: UmapRun } | null = null;
}

/** The components that are drawn: UMAP begins from the first two. */
export function axesOf({ across, method, up }: Pick<ProjectionChoice, 'across' | 'method' | 'up'>): {
  across: number;
  up: number;
} {
  return method === 'umap' ? { across: 1, up: 2 } : { across, up };
}

function chosenOf(all: readonly IGeneration[], requested: string): IGeneration[] {
  if (requested === 'newest') {
    const newest = generationOf(all, null);
    return newest ? [newest] : [];
  }
  const numbers = inRanges(
    requested,
    all.map(({ generation }) => generation)
  );
  return all.filter(({ generation }) => numbers.includes(generation));
}

/** What UMAP has by now, turned onto where it began: that is where the layer before is, too. */
function laidOut({ plane, text }: IProjected, start: Float64Array, { state }: UmapRun): Float64Array {
  if (state === null) {
    return plane.coordinates;
  }
  const coordinates = new Float64Array(2 * text.tokens.length).fill(NaN);
  const laid = rotated(state.coordinates, rotateOnto(state.coordinates, start));
  plane.features.kept.forEach((token, row) => {
    coordinates[2 * token] = laid[2 * row] ?? NaN;
    coordinates[2 * token + 1] = laid[2 * row + 1] ?? NaN;
  });
  return coordinates;
}
