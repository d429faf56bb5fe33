import { rotated, rotateOnto } from '../../projection/procrustes';
import { Projector, type UmapRun } from '../../projection/projector';
import type { ProjectionOptions } from '../../../../protocol/views.generated';
import { inRanges } from '../../../../protocol/ranges';
import { generationOf, isUnderWay, readGenerations, type IGeneration } from '../../store/generations';
import type { IRunSource, SourceChange } from '../../../../store/source';
import type { ITensorShape } from '../../../../store/tensor-data';
import { flagInfo } from '../../../../views/shared/describe';
import { Similarity, Planes, type IPlane } from './planes';
import { GenerationReaders, TextVectors } from './text-vectors';

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
    const text = await TextVectors.read(this._source, this._rows, generations, signal);
    this._text = text;
    if (text.tokens.length === 0) {
      return { kind: 'no-token', generations };
    }
    const query = { flag, ...((part ?? shape.parts[0]) ? { part: part ?? shape.parts[0] ?? '' } : {}) };
    const before = keep_axes ? shape.layers.filter(each => each < layer) : [];
    const request = { ...axesOf(options), standardise };
    const plane = await this._planes.of(
      JSON.stringify([text.key, query, request, keep_axes]),
      [...before, layer],
      request,
      each => {
        waits(each);
        return text.of(query, each, axis, signal);
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
