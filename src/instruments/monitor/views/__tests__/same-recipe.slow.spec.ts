import { checkRecipes } from '../../../../views/__tests__/recipe-checks';
import { PICTURED, picturedRun } from './pictured';

checkRecipes(PICTURED, picturedRun);
