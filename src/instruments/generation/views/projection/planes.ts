import type { IFeatures } from '../../projection/features';
import { rotated, rotateOnto, type IRotation } from '../../projection/procrustes';
import type { Projector } from '../../projection/projector';
import type { ILayerVectors } from './text-vectors';

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
