import { formatInteger, type IPlace } from '../../../../../charts';
import { countWords, rankMap, type IRankMap } from '../../plan/rank-map';
import type { ISplitPlanned } from '../../plan/split-planned';
import type { RankMapName } from '../../protocol/split.generated';
import type { SplitOptions } from '../../../../../protocol/views.generated';
import type { IMark, IMoved, Loaded } from '../../../../../views/shared/content';
import type { ITip } from '../../../../../views/shared/tip';
import { RolesPicture } from './roles-picture';
import { SplitPane } from './split-pane';
import type { ISplitRead } from './split-reader';

/** Which process does what. */
export class RolesPane extends SplitPane {
  override readonly subject = this.t('Roles of processes');

  protected show(read: ISplitRead, drawn: ISplitPlanned | null): Loaded {
    const { env, t } = this;
    const map = rankMap(mapRequest(this.options, read, drawn));
    const picture = this._picture.draw(map, env.width, env.isDark);
    return {
      content: {
        title: t(
          'Roles of %1 processes: tensor parallel %2, stages %3, replicas %4',
          formatInteger(map.processes.length),
          formatInteger(map.tensor),
          formatInteger(map.stages),
          formatInteger(map.replicas)
        ),
        caption: this._caption(map),
        summary: t(
          'There are %1 processes: %2.',
          formatInteger(map.processes.length),
          countWords(map.processes)
        ),
        ...picture
      }
    };
  }

  override probe(place: IPlace): IMark | null {
    return this._picture.probe(place);
  }

  override tipOf(mark: IMark): ITip | null {
    return this._picture.tipOf(mark, this.env.isDark);
  }

  override move(key: string): IMoved | null {
    return this._picture.move(key);
  }

  private _caption({ layout, processes, ranks }: IRankMap): string[] {
    const { t } = this;
    const { left } = this._picture;
    return [
      t(
        'A number is the rank of a process; v are the ranks that it stands for, as Megatron counts them (%1).',
        formatInteger(ranks.length)
      ),
      ...(layout === 'megafbd'
        ? [t('Rank 0 coordinates the others and holds no model, but takes a place all the same.')]
        : []),
      ...(left > 0
        ? [t('%1 of %2 processes are not drawn.', formatInteger(left), formatInteger(processes.length))]
        : [])
    ];
  }

  private readonly _picture = new RolesPicture(this.t);
}

/** The map that options ask for: numbers that they leave out are those of the layout that is drawn, of the best split where that is none. */
function mapRequest(options: Required<SplitOptions>, read: ISplitRead, drawn: ISplitPlanned | null): object {
  const family = drawn?.layout.family;
  const layout = family === 'split' || family === 'megafbd' ? drawn?.layout : read.plan.verdict.split?.layout;
  const name: RankMapName = options.rank_map;
  const isOurs = name === 'megalens';
  const pipeline = options.pipeline ?? layout?.stages.length ?? 2;
  const tensor = options.tensor ?? layout?.tensor ?? 1;
  const data = options.data ?? layout?.data ?? 1;
  const isAsDrawn = options.tensor === null || options.tensor === layout?.tensor;
  const forward = options.forward_tensor ?? (isAsDrawn ? (layout?.forward_tensor ?? tensor) : tensor);
  const hasLast = options.last_forward ?? (pipeline === 1 || layout?.stages.at(-1)?.forward_device !== null);
  return {
    layout: name,
    tensor,
    pipeline,
    data: isOurs ? data : 2 * data,
    ...(isOurs ? { forward_tensor: forward, last_forward: hasLast } : {})
  };
}
