import { ReadOnce } from '../../../store/read-once';
import type { IRunSource, SourceChange } from '../../../store/source';
import { readLocations } from './generated-tokens';
import { GenerationRows } from './generation-rows';
import { readGenerations } from './generations';

/** Reads the tensors of a run's texts, and again what has changed of them. */
export class TextTensors {
  constructor(private readonly _source: IRunSource) {
    this.rows = new GenerationRows(_source);
  }

  readonly generations = new ReadOnce(() => readGenerations(this._source));

  readonly locations = new ReadOnce((generation: number, sequence: number) =>
    readLocations(this._source, generation, sequence)
  );

  readonly rows: GenerationRows;

  /** Whether news of the run change what is read; they are taken note of. */
  concerns(change: SourceChange): boolean {
    if (change.kind !== 'rows') {
      return false;
    }
    switch (change.stream) {
      case 'tokens':
        this.locations.renew();
        return true;
      case 'generations':
        this.generations.renew();
        return true;
      case 'tensors':
        this.rows.came(change.firstStep, change.lastStep);
        return true;
      default:
        return false;
    }
  }
}
