import { formatInteger, formatNumber } from '../../../../charts';
import type { ProjectionOptions, ViewOptions } from '../../../../protocol/views.generated';
import type { IRunSource } from '../../../../store/source';
import { python, writtenCall } from '../../../../views/code';
import { tableOnly, type INote, type Loaded } from '../../../../views/shared/content';
import type { Control } from '../../../../views/shared/control';
import type {
  IComposition,
  ICompositionEnvironment,
  IViewPart,
  IViewDefinition
} from '../../../../views/shared/definition';
import { tokenText } from '../../../../views/shared/describe';
import { emptyState } from '../../../../views/shared/states';
import { numberColumn, tableOf, type ITableColumn } from '../../../../views/shared/table';
import type { IViewEnvironment } from '../../../../views/shared/view-model';
import { lengthOf, type ILike, type IProjected, ProjectionReader } from './projection-reader';
import { PointsPane } from './points-pane';
import { ProjectionPane } from './projection-pane';
import { countWords, tokenWords } from './projection-words';
import type { IVectorToken } from './text-vectors';
import { promptName, type TokenGroup } from './token-group';

/** Neighbours of a group that are listed. */
const NEIGHBOURS = 20;

interface IRow extends ILike {
  readonly token: IVectorToken | undefined;
  readonly isInGroup: boolean;
}

/** The tokens of a group and its neighbours, and the way from the others to it as a line of code. */
class GroupPane extends ProjectionPane {
  protected show(projected: IProjected): Loaded {
    const { t } = this;
    const { generations, plane, text } = projected;
    const { kept } = plane.features;
    const group = this.groupOf(projected);
    const tokenOf = (row: number): IVectorToken | undefined => text.tokens[kept[row] ?? -1];
    const isIn = (row: number): boolean => {
      const token = tokenOf(row);
      return token !== undefined && group.has(token);
    };
    const members = Array.from(kept.keys()).filter(isIn);
    if (members.length === 0) {
      const sentence = t('No token of the group is among those that are drawn.');
      return { state: emptyState(sentence, t('Let the group go'), () => this.pick({ group: '' })) };
    }
    const similarity = projected.similarity();
    const mean = similarity.meanOf(members);
    const alike = similarity.to(mean);
    const rowOf = (like: ILike, isInGroup: boolean): IRow => ({
      token: tokenOf(like.row),
      isInGroup,
      ...like
    });
    const rows: IRow[] = [
      ...members
        .map(row => rowOf({ row, similarity: alike[row] ?? NaN }, true))
        .sort((a, b) => b.similarity - a.similarity),
      ...similarity.nearest(mean, NEIGHBOURS, isIn).map(each => rowOf(each, false))
    ];
    const neighbours = new Map<number, string>();
    const neighbourOf = ({ row }: IRow): string => {
      const known = neighbours.get(row);
      if (known !== undefined) {
        return known;
      }
      const [nearest] = similarity.nearest(similarity.vectorOf(row), 1, other => other === row);
      const token = tokenOf(nearest?.row ?? -1);
      const words = token ? tokenWords(token, t) : '';
      neighbours.set(row, words);
      return words;
    };
    const number = (title: string, name: 'generation' | 'position' | 'sequence'): ITableColumn<IRow> =>
      numberColumn(title, ({ token }) => token?.[name] ?? NaN, formatInteger);
    const columns: ITableColumn<IRow>[] = [
      {
        title: t('token'),
        text: ({ token }) => tokenText(token?.piece ?? ''),
        press: ({ token }) => this._pin(token)
      },
      {
        title: t('in the group'),
        text: ({ isInGroup }) => (isInGroup ? t('yes') : t('neighbour')),
        sortBy: ({ isInGroup }) => (isInGroup ? 1 : 0)
      },
      numberColumn(t('cosine similarity to its mean'), ({ similarity: found }) => found),
      ...(generations.length > 1 ? [number(t('generation'), 'generation')] : []),
      number(t('sequence'), 'sequence'),
      number(t('position'), 'position'),
      {
        title: t('prompt'),
        text: ({ token }) => (token ? promptName(token.generation, token.prompt, generations, t) : '')
      },
      { title: t('most alike token'), text: neighbourOf }
    ];
    return {
      content: {
        ...tableOnly(tableOf(rows, columns)),
        title: t('Group of %1', countWords(members.length, t)),
        caption: [
          t(
            'Similarity is the cosine between vectors about the mean of all %1 tokens that are drawn; after the group its %2 nearest neighbours.',
            formatInteger(kept.length),
            formatInteger(rows.length - members.length)
          )
        ],
        summary: '',
        notes: members.length < kept.length ? [this._note(projected, group, members, mean)] : []
      }
    };
  }

  private _note(
    projected: IProjected,
    group: TokenGroup,
    members: readonly number[],
    mean: Float64Array
  ): INote {
    const { t } = this;
    const { features, source } = projected.plane;
    const rest = features.rows - members.length;
    // The mean of all is 0, so that of the others lies opposite.
    const length = (lengthOf(mean) * features.rows) / rest;
    const code = this._code(projected, group);
    const isWhole = features.columns === (source.row.sourceShape[source.row.sourceShape.length - 1] ?? 0);
    const apart = t(
      this.chosen.standardise
        ? 'The mean of the group is %1 deviations from that of the %2 other tokens.'
        : 'The mean of the group is %1 from that of the %2 other tokens.',
      formatNumber(length, 3),
      formatInteger(rest)
    );
    const coarse = t(
      'Of the direction only what the compressor kept is known: trace it with NoOp to have all of it.'
    );
    const copy = async (): Promise<void> => {
      await this.actions.copy(code);
      this._copied = code;
      this.env.refresh(true);
    };
    return {
      text:
        this._copied === code
          ? t('Two lines that save the direction are on the clipboard: paste them into a cell.')
          : isWhole
            ? apart
            : `${apart} ${coarse}`,
      action: {
        label: t('Steer by this direction'),
        run: () => void copy().catch((reason: unknown) => this.env.fail(reason))
      }
    };
  }

  /** Code that computes the direction from the run and saves it for `Projection` and `AddVector`. */
  private _code({ generations, plane }: IProjected, group: TokenGroup): string {
    const { flag, part } = this.chosen;
    const numbers = generations.map(({ generation }) => generation);
    const isOne = numbers.length === 1;
    const tokens = group.tokens.map(({ generation, sequence, position }) =>
      isOne ? `(${sequence}, ${position})` : `(${generation}, ${sequence}, ${position})`
    );
    const direction = writtenCall(
      'run.direction',
      [python(flag)],
      [
        ['layer', python(plane.layer)],
        ['generation', python(isOne ? numbers[0] : numbers)],
        ['tokens', `[${tokens.join(', ')}]`],
        ...(part === null ? [] : [['part', python(part)] as const])
      ]
    );
    const save = writtenCall('megalens.save_direction', [python('direction.safetensors'), 'direction']);
    return `direction = ${direction}\n${save}`;
  }

  private _pin(token: IVectorToken | undefined): void {
    if (token) {
      const { generation, sequence, position } = token;
      this.env.pinPosition({ generation, sequence, position });
    }
  }

  private _copied = '';
}

type Pane = new (source: IRunSource, env: IViewEnvironment, reader: ProjectionReader) => ProjectionPane;

/** Vectors of tokens as points of a plane, and below them the tokens of a group that is looked at. */
class ProjectionView implements IComposition {
  constructor(
    source: IRunSource,
    private readonly _env: ICompositionEnvironment<ProjectionOptions>
  ) {
    this._reader = new ProjectionReader(source);
  }

  readonly className = 'jp-MegalensMoments jp-MegalensProjection';
  readonly zoomed = 'points';
  readonly unpictured = '';

  layout(): readonly IViewPart[] {
    const { options } = this._env;
    const part = (key: string, pane: Pane, unpictured: boolean): IViewPart => ({
      key,
      className: 'jp-MegalensMoments-pane',
      unpictured,
      options: options as Required<ViewOptions>,
      create: (source, env) => new pane(source, env, this._reader)
    });
    return [
      part('points', PointsPane, false),
      ...(options.group === '' ? [] : [part('group', GroupPane, true)])
    ];
  }

  shows(key: string, isDrawn: (key: string) => boolean): boolean {
    return key === 'points' || isDrawn('points');
  }

  heard(_key: string, options: Partial<ViewOptions>): Partial<ProjectionOptions> {
    return options as Partial<ProjectionOptions>;
  }

  controls(of: (key: string) => readonly Control[]): { main: readonly Control[] } {
    return { main: of('points') };
  }

  dispose(): void {
    this._reader.dispose();
  }

  private readonly _reader: ProjectionReader;
}

export const view: IViewDefinition<ProjectionOptions> = {
  compose: (source, env) => new ProjectionView(source, env)
};
