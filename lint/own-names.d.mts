import type { Rule } from 'eslint';

export declare const ownNames: Rule.RuleModule;
