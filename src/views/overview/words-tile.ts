import type { IRunSource, SourceChange } from '../../store/source';
import type { IBrief, IContent, Loaded } from '../shared/content';
import type { IState } from '../shared/states';
import { ViewModel, type IViewEnvironment } from '../shared/view-model';

/** What a tile of words has to say; `said` is the same in sentences. */
export interface ISaid {
  readonly brief: IBrief;
  readonly said: readonly string[];
}

/** A tile without a picture: sentences, bars and numbers. */
export abstract class WordsTile extends ViewModel {
  /** @param streams - Those whose rows change it. */
  constructor(
    source: IRunSource,
    env: IViewEnvironment,
    readonly subject: string,
    private readonly _streams: readonly string[]
  ) {
    super(source, env);
  }

  concerns(change: SourceChange): boolean {
    return change.kind === 'rows' && this._streams.includes(change.stream);
  }

  protected abstract read(signal: AbortSignal): Promise<ISaid | IState>;

  async load(signal: AbortSignal): Promise<Loaded> {
    const found = await this.read(signal);
    return 'kind' in found ? { state: found } : { content: wordsContent(this.subject, found) };
  }
}

function wordsContent(title: string, { brief, said }: ISaid): IContent {
  return {
    recipe: null,
    brief,
    extent: { x: [0, 1], y: [0, 1] },
    title,
    caption: said,
    summary: said.join(' ')
  };
}
