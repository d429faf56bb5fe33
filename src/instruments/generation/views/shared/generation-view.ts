import type { TokensOptions } from '../../../../protocol/views.generated';
import { generationOf, GenerationReader, type IGeneration } from '../../store/generations';
import type { SourceChange } from '../../../../store/source';
import type { Control } from '../../../../views/shared/control';
import { generationControls } from './generation-pick';
import { ViewModel } from '../../../../views/shared/view-model';

type TextOptions = Pick<Required<TokensOptions>, 'generation' | 'position' | 'sequence'>;

/** A view of one sequence of a generation: which it is, and which can be chosen. */
export abstract class GenerationView<O extends TextOptions> extends ViewModel<O> {
  /** Streams that are read. */
  protected abstract readonly streams: readonly string[];

  /** Whether a generation was asked for with what is drawn. */
  protected abstract has(generation: IGeneration): boolean;

  concerns(change: SourceChange): boolean {
    const isOurs = change.kind === 'rows' && this.streams.includes(change.stream);
    if (isOurs && change.stream === 'generations') {
      this._generations.renew();
    }
    return isOurs;
  }

  override zoomed(): void {
    this.env.refresh(false);
  }

  override restyled(): void {
    this.env.refresh();
  }

  /** Read which generations there are; `asked` is the one of the options, else the newest that has what is drawn. */
  protected async readGenerations(): Promise<{
    all: readonly IGeneration[];
    asked: IGeneration | undefined;
  }> {
    const { generation } = this.options;
    const all = await this._generations.read(this.source);
    this._offered = all.filter(each => this.has(each));
    return { all, asked: generationOf(generation === null ? this._offered : all, generation) };
  }

  /**
   * The controls that say which text of which run is drawn.
   *
   * @param shown - Whose sequences are offered; undefined where there is nothing to choose.
   */
  protected textControls(shown: IGeneration | undefined): Control[] {
    const choose = (change: Partial<TextOptions>): void =>
      this.choose({ ...change, position: null } as Partial<O>);
    return [
      { kind: 'name', id: 'run', text: this.source.name },
      ...generationControls(this._offered, shown, this.options, choose, this.t)
    ];
  }

  private readonly _generations = new GenerationReader();
  private _offered: readonly IGeneration[] = [];
}
