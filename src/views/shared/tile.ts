import type { IRunSource } from '../../store/source';
import type { IContent, Loaded } from './content';
import type { IViewModel } from './definition';
import { errorState } from './states';
import { ViewModel, type IViewEnvironment } from './view-model';

/** A tile that cannot be made: it says why, and the others stay. */
class BrokenTile extends ViewModel {
  constructor(
    source: IRunSource,
    env: IViewEnvironment,
    private readonly _reason: unknown
  ) {
    super(source, env);
  }

  readonly subject = '';

  concerns(): boolean {
    return false;
  }

  async load(): Promise<Loaded> {
    return { state: errorState(this._reason, this.actions, this.t) };
  }
}

/**
 * Make a tile that never ends the page: what it throws is said in its place. Its picture is given a height.
 *
 * @param height Pixels of a picture, as things are now.
 */
export function guarded(
  make: () => IViewModel,
  source: IRunSource,
  env: IViewEnvironment,
  height: () => number
): IViewModel {
  let model: IViewModel;
  try {
    model = make();
  } catch (reason) {
    return new BrokenTile(source, env, reason);
  }
  const load = model.load.bind(model);
  model.load = async signal => {
    try {
      const loaded = await load(signal);
      return 'content' in loaded ? { content: withHeight(loaded.content, height()) } : loaded;
    } catch (reason) {
      signal.throwIfAborted();
      return { state: errorState(reason, env.actions, env.t) };
    }
  };
  return model;
}

/** A content whose plots together have a height. */
function withHeight(content: IContent, height: number): IContent {
  const { recipe, refit, printed, rows = 1 } = content;
  const each = Math.round(height / rows);
  const sized = <R extends IContent['recipe']>(of: R): R => of && { ...of, height: each };
  return {
    ...content,
    recipe: sized(recipe),
    ...(refit && { refit: frame => sized(refit(frame)) }),
    ...(printed && { printed: dark => sized(printed(dark)) })
  };
}
