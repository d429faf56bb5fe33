import type { IMomentGroups, IMomentQuery, MomentStat } from '../store/moment-source';
import { AggregateError } from './aggregate-error';
import { groupTables } from './moment-ratio';
import { needsWhole, shapeGroups } from './moment-shape';
import { MomentTable, type IRowPart } from './moment-table';

/** What can be asked of tables. They are known by a name that the asker gives them. */
export type TableQuestion =
  | {
      readonly kind: 'load';
      readonly table: string;
      readonly stat: MomentStat;
      readonly rows: IRowPart;
      /** The rows take the place of those from this step on; of all when null. */
      readonly from: number | null;
    }
  | { readonly kind: 'group'; readonly tables: readonly string[]; readonly question: IMomentQuery }
  | { readonly kind: 'drop'; readonly table: string };

/** What it answers: the number of rows of the table, or groups. */
export type TableAnswer =
  | { readonly kind: 'rows'; readonly rows: number }
  | { readonly kind: 'groups'; readonly groups: IMomentGroups };

/** Keeps tables of moments and answers questions on them: on the page where they are small, in the worker where they are large. */
export class MomentTables {
  /**
   * Answer a question.
   *
   * @throws AggregateError when the question contradicts itself, or `lost` when there is no such table.
   */
  ask(question: TableQuestion): TableAnswer {
    switch (question.kind) {
      case 'load': {
        const { table: name, stat, rows, from } = question;
        const table = from === null ? new MomentTable(stat) : this.table(name);
        if (from !== null) {
          table.cut(from);
        }
        table.append(rows);
        this.tables.set(name, table);
        return { kind: 'rows', rows: table.length };
      }
      case 'group': {
        const tables = question.tables.map(name => this.table(name));
        const asked = question.question;
        const query = needsWhole(asked) ? { ...asked, steps: null } : asked;
        return { kind: 'groups', groups: shapeGroups(groupTables(tables, query), asked) };
      }
      case 'drop':
        this.tables.delete(question.table);
        return { kind: 'rows', rows: 0 };
    }
  }

  private table(name: string): MomentTable {
    const table = this.tables.get(name);
    if (table === undefined) {
      throw new AggregateError('The rows are not here any more. Ask again.', 'lost');
    }
    return table;
  }

  private readonly tables = new Map<string, MomentTable>();
}
